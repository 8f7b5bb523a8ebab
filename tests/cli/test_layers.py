"""`foveapool layers`: a network from a file of one's own, and what --options may be."""

import pytest
from typer.testing import CliRunner

from foveapool.cli.main import application

NETWORK = """
from torch import nn

def small(channels=8):
    return nn.Sequential(nn.Conv2d(3, channels, 3, 2, 1))

made = small()
"""


def layers(folder, name, *options):
    path = folder / "network.py"
    path.write_text(NETWORK, "utf-8")
    return CliRunner().invoke(application(), ["layers", f"{path}:{name}", *options])


def test_options_for_a_network_that_is_made_already_are_refused(tmp_path):
    done = layers(tmp_path, "made", "--options", '{"channels": 6}')
    assert done.exit_code == 2 and done.stdout == ""
    assert done.stderr.startswith("error: options: got '{\"channels\": 6}' for ")
    assert "network.py:made, which is a network already and takes none" in done.stderr
    for options in ((), ("--options", "{}")):
        assert "3 -> 8" in layers(tmp_path, "made", *options).stdout
    assert "3 -> 6" in layers(tmp_path, "small", "--options", '{"channels": 6}').stdout


@pytest.mark.parametrize("text", ["[1]", "[]", "6", '"wide"', "null"])
@pytest.mark.parametrize("name", ["made", "small"])
def test_options_are_an_object(tmp_path, name, text):
    done = layers(tmp_path, name, "--options", text)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: options: got {text!r}, wanted a JSON object of names")


def test_a_file_is_loaded_as_python_would_run_it(tmp_path):
    (tmp_path / "beside_the_network.py").write_text("from torch import nn\n", "utf-8")
    lines = [
        "from __future__ import annotations",
        "from dataclasses import dataclass",
        "from beside_the_network import nn",
        "@dataclass",
        "class Config:",
        "    width: int = 8",
        "def small():",
        "    return nn.Sequential(nn.Conv2d(3, Config().width, 3, 2, 1))",
    ]
    (tmp_path / "own.py").write_text("\n".join(lines), "utf-8")
    done = CliRunner().invoke(application(), ["layers", f"{tmp_path / 'own.py'}:small"])
    assert done.exit_code == 0, done.output
    assert "3 -> 8" in done.stdout


def test_help_says_that_the_file_is_run():
    done = CliRunner(env={"COLUMNS": "200"}).invoke(application(), ["layers", "--help"])
    assert "file is run, as by python: name none that you do not trust" in done.output
