"""Reports without the figures of `cory.report.plots`."""

import pytest


@pytest.fixture
def no_plots(monkeypatch):
    """Leave out the figures, which take longer than the page, if they are not the subject."""
    monkeypatch.setattr("cory.report.plots.draw", lambda curves, folder: folder.mkdir(exist_ok=True) or [])
