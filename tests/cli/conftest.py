"""A small study and small images in files, and a promise that nothing is trained."""

import pytest

from foveapool.data.user_data import write_npz
from foveapool.study.spec import TrainingJob

from ..study.small_studies import TINY
from ..training.toys import toy_data


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The name of toy images."""
    path = tmp_path_factory.mktemp("data") / "toy.npz"
    write_npz(toy_data(), path)
    return f"npz:{path}"


@pytest.fixture
def preset(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture
def no_training(monkeypatch):
    """Nothing may be trained into a folder any more."""
    monkeypatch.setattr(TrainingJob, "run", None)
