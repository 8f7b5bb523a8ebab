"""A small study in a file, and a promise that nothing is trained."""

import pytest

from foveapool.study.spec import TrainingJob

from ..study.small_studies import TINY


@pytest.fixture
def preset(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture
def no_training(monkeypatch):
    """Nothing may be trained into a folder any more."""
    monkeypatch.setattr(TrainingJob, "run", None)
