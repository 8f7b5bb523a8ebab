"""`foveapool layers --options`: what they may be, and what takes none."""

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
