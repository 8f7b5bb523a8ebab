"""What errors advise: a command that works where the package was installed from."""

import re
import tomllib
from pathlib import Path

from foveapool import _suggest


def test_a_clone_is_installed_from_where_it_lies(monkeypatch, tmp_path):
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(_suggest, "__file__", str(tmp_path / "src" / "foveapool" / "_suggest.py"))
    assert _suggest.how_to_install("cli") == f"pip install -e '{tmp_path.resolve()}[cli]'"


def test_an_installed_package_is_installed_by_its_name(monkeypatch, tmp_path):
    place = tmp_path / "lib" / "site-packages" / "foveapool" / "_suggest.py"
    monkeypatch.setattr(_suggest, "__file__", str(place))
    assert _suggest.how_to_install("cli") == "pip install 'foveapool[cli]'"


def test_the_extras_that_errors_name_are_there():
    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    source = "".join(path.read_text("utf-8") for path in (root / "src").rglob("*.py"))
    named = set(re.findall(r"how_to_install\(['\"](\w+)", source))
    assert len(named) > 5 and named <= set(project["optional-dependencies"])
