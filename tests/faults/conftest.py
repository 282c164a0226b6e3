"""Runs that start quickly, and a table at the end of a session: what was killed or damaged."""

from collections import Counter

import pytest

from tests.helpers.runs import with_cached_entry_points

TALLY = pytest.StashKey[dict[str, Counter]]()
COLUMNS = ("times", "lost runs", "corrupted resumes")


@pytest.fixture(scope="module", autouse=True)
def cached_entry_points():
    with pytest.MonkeyPatch.context() as patch:
        with_cached_entry_points(patch)
        yield


@pytest.fixture(scope="session")
def tally(request) -> dict[str, Counter]:
    """Counts of `COLUMNS` by kind; a kind begins with `killed` or `damaged`."""
    return request.config.stash.setdefault(TALLY, {})


def pytest_terminal_summary(terminalreporter, config) -> None:
    """Print the table of kills."""
    counts_by_kind = config.stash.get(TALLY, {})
    if not counts_by_kind:
        return
    rows = dict(counts_by_kind)
    for verb in sorted({kind.split(":")[0] for kind in counts_by_kind}):
        every = (counts for kind, counts in counts_by_kind.items() if kind.startswith(verb))
        rows[f"**{verb}, all**"] = sum(every, Counter())
    terminalreporter.write_line(f"\n| what | {' | '.join(COLUMNS)} |")
    terminalreporter.write_line("|---|" + "---:|" * len(COLUMNS))
    for kind, counts in rows.items():
        terminalreporter.write_line(f"| {kind} | {' | '.join(str(counts[name]) for name in COLUMNS)} |")
