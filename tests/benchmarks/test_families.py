"""The page of architectures says what is trained and what is refused."""

import pytest

from benchmarks import families


@pytest.mark.long
@pytest.mark.parametrize("family", families.FAMILIES)
def test_a_family_is_trained_or_refused_as_the_page_says(family):
    assert families.outcome(family).row() in families.PAGE.read_text(encoding="utf-8").splitlines()


def test_the_page_has_every_family_and_at_least_sixty():
    lines = families.PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line.split(" | ")[0].removeprefix("| ") for line in lines if line.startswith("| ")][1:]
    assert rows == list(families.FAMILIES)
    assert len(rows) >= 60
