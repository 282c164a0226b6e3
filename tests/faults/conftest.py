"""What was killed or damaged, by kind, and how it ended: told at the end of a session."""

from collections import Counter

import pytest

TOLD = pytest.StashKey[dict[str, Counter]]()
COLUMNS = ("times", "lost runs", "corrupted resumes")


@pytest.fixture(scope="session")
def tally(request) -> dict[str, Counter]:
    """Counts of `COLUMNS` by kind; a kind begins with `killed` or `damaged`."""
    return request.config.stash.setdefault(TOLD, {})


def pytest_terminal_summary(terminalreporter, config) -> None:
    """The table, as docs/reliability.md has it."""
    told = config.stash.get(TOLD, {})
    if not told:
        return
    rows = dict(told)
    for verb in sorted({kind.split(":")[0] for kind in told}):
        every = (counts for kind, counts in told.items() if kind.startswith(verb))
        rows[f"**{verb}, all**"] = sum(every, Counter())
    terminalreporter.write_line(f"\n| what | {' | '.join(COLUMNS)} |")
    terminalreporter.write_line("|---|" + "---:|" * len(COLUMNS))
    for kind, counts in rows.items():
        terminalreporter.write_line(f"| {kind} | {' | '.join(str(counts[name]) for name in COLUMNS)} |")
