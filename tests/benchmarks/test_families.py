"""The page of architectures says what is trained and what is refused."""

import pytest

from benchmarks import families


def outcomes():
    """What the page says of each family."""
    lines = [line.strip("| ").split(" | ") for line in families.PAGE.read_text("utf-8").splitlines()]
    rows = [row for row in lines if row[0].startswith(("trained", "refused"))]
    return [(family, text) for text, names in rows for family in names.split(", ")]


@pytest.mark.long
@pytest.mark.parametrize("family", families.FAMILIES)
def test_a_family_is_trained_or_refused_as_the_page_says(family):
    assert families.outcome(family) == dict(outcomes())[family]


def test_the_page_is_of_every_family_once_and_of_at_least_sixty():
    names = [family for family, _ in outcomes()]
    assert sorted(names) == sorted(families.FAMILIES)
    assert len(names) >= 60
    ordered = {family: dict(outcomes())[family] for family in families.FAMILIES}
    assert families.PAGE.read_text("utf-8") == families.page(ordered)
