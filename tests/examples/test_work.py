"""Folders that examples go on in."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from examples.work import begin


@dataclass(frozen=True)
class Config:
    work: Path
    out: Path = Path("one")
    seed: int = 0


def test_a_folder_is_refused_to_other_settings_than_those_it_was_begun_with(tmp_path):
    config = Config(tmp_path / "work")
    begin(config)
    begin(replace(config, out=Path("two")))
    with pytest.raises(ValueError, match="was begun with seed 0, now it is 1; name another folder"):
        begin(replace(config, seed=1))
    begin(config)
