"""A folder of runs, empty at first."""

import pytest

from foveapool.runs import Runs


@pytest.fixture
def runs(tmp_path):
    """The folder, with all that it says in `said`."""
    said = []
    runs = Runs(tmp_path / "runs", said.append)
    runs.said = said
    return runs
