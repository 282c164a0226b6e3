"""Any settings file and any data file is accepted or refused with a ValueError."""

import json
import string
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cory.config import presets
from cory.config.parsing import settings_of
from cory.config.schema import Config
from cory_env import tasks
from cory_env.data.tables import read_rows

SLOW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
QUICK = settings(SLOW, max_examples=60)

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.dates()
    | st.sampled_from(["pocket", "echo", "table", "nan", "1e400", "--seats", "!!python/name:os.system"])
)  # fmt: skip
SETTINGS = "batch seats kl coef policy kind task payoff max_response learner lr judge"
NAMES = st.sampled_from(SETTINGS.split()) | st.text(string.printable, max_size=6)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=9,
)


def refusal(call: Callable[[], object]) -> str:
    """The text of the ValueError of a call; empty if there is none. Any other error is a fault."""
    try:
        call()
    except ValueError as error:
        return str(error) or repr(error)
    return ""


@pytest.mark.faults
@SLOW
@given(tree=st.dictionaries(NAMES, TREES, min_size=1, max_size=4))
def test_any_tree_of_settings_is_accepted_or_refused(tree, tmp_path):
    import yaml

    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    refusal(lambda: Config.from_flat(settings_of(path), presets.get("pocket")))


@QUICK
@given(content=st.binary(max_size=60) | st.text("{}[]:-&*!#|>\n\t '\"ab01", max_size=40).map(str.encode))
def test_any_bytes_are_settings_or_refused_by_name(content, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    error = refusal(lambda: settings_of(path))
    assert not error or "mine.yaml" in error


@QUICK
@given(
    suffix=st.sampled_from([".jsonl", ".json", ".csv", ".parquet"]),
    content=st.binary(max_size=60)
    | st.lists(st.dictionaries(st.sampled_from(["text", "prompt"]), TREES, max_size=2), max_size=4).map(
        lambda rows: "\n".join(json.dumps(row, default=str) for row in rows).encode()
    )
    | st.text('{}[]:,"\n\r\0 ab01', max_size=40).map(str.encode),
)
def test_any_bytes_are_rows_or_refused_by_name(suffix, content, tmp_path):
    path = tmp_path / f"data{suffix}"
    path.write_bytes(content)
    error = refusal(lambda: read_rows(path, {"prompt": ("prompt", "text")}))
    assert not error or path.name in error
    for name in ("prompts", "reviews"):
        refusal(partial(tasks.load, name, data=path))
