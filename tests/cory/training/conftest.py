"""Runs that start quickly."""

import pytest

from tests.helpers.runs import with_cached_entry_points


@pytest.fixture(scope="module", autouse=True)
def cached_entry_points():
    with pytest.MonkeyPatch.context() as patch:
        with_cached_entry_points(patch)
        yield
