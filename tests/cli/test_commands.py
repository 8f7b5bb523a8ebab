"""The commands as a user types them: layers, fit, bench, and what wrong words get."""

import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import foveapool as fp
from foveapool.cli import bench, train
from foveapool.cli.main import application, main
from foveapool.data.registry import load_data
from foveapool.study import spec

NETWORK = """
from torch import nn

def small(channels=8):
    return nn.Sequential(nn.Conv2d(3, channels, 3, 2, 1), nn.ReLU(), nn.MaxPool2d(2))

plain = nn.Linear(2, 2)
number = lambda: 3
"""

DEEP = """
from torch import nn

class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.main, self.shortcut = nn.Conv2d(3, 6, 3, 2, 1), nn.Conv2d(3, 6, 1, 2)

    def forward(self, maps):
        return self.main(maps) + self.shortcut(maps)

def Net():
    inner = Both()
    for name in ("stage",) * 12 + ("encoder",):
        outer = nn.Sequential()
        outer.add_module(name, inner)
        inner = outer
    return inner
"""


def foveapool(*words, cwd=None):
    command = [sys.executable, "-m", "foveapool", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


@pytest.fixture
def network(tmp_path):
    path = tmp_path / "network.py"
    path.write_text(NETWORK, "utf-8")
    return path


def test_layers_lists_what_shrinks(network):
    done = foveapool("layers", f"{network}:small", "--options", '{"channels": 6}')
    assert done.returncode == 0, done.stderr
    assert "3 -> 6" in done.stdout and "32x32 -> 16x16" in done.stdout
    assert "MaxPool2d" in done.stdout and "16x16 -> 8x8" in done.stdout


def test_the_version_is_told():
    done = foveapool("--version")
    assert (done.returncode, done.stdout) == (0, f"foveapool {fp.__version__}\n")


def test_names_of_layers_stay_whole_in_a_pipe(tmp_path):
    (tmp_path / "deep.py").write_text(DEEP, "utf-8")
    runner = CliRunner(env={"COLUMNS": "80"})
    done = runner.invoke(application(), ["layers", f"{tmp_path / 'deep.py'}:Net"])
    assert done.exit_code == 0, done.output
    _, first, second = done.stdout.splitlines()
    names = [f"encoder.{'stage.' * 12}{branch}" for branch in ("main", "shortcut")]
    assert first.split()[0] == second.split()[-1] == names[0]
    assert second.split()[0] == first.split()[-1] == names[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("layers", "network.py:nothing"), "has no 'nothing'"),
        (("layers", "elsewhere.py:small"), "no such file"),
        (("layers", "network.py"), "wanted MODULE:NAME or FILE.py:NAME"),
        (("layers", "network.py:number"), "wanted an nn.Module"),
        (("layers", "network.py:small", "--input", "3x32"), "wanted channels x height x width"),
        (("layers", "network.py:small", "--options", "{"), "wanted a JSON object"),
        (
            ("layers", "network.py:small", "--input", "1x32x32"),
            "error: network: network.py:small does not take an input of shape (1, 1, 32, 32): "
            "RuntimeError: Given groups=1",
        ),
        (
            ("layers", "network.py:small", "--options", '{"color": 1}'),
            "network.py:small cannot be made with {'color': 1}: TypeError",
        ),
        (("fit", "nowhere"), "wanted a run folder of `foveapool train`"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_two(network, words, message, monkeypatch):
    monkeypatch.chdir(network.parent)
    done = CliRunner().invoke(application(), words)
    assert done.exit_code == 2, done.exception
    assert message in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_mistake_is_one_line_and_exit_code_two_in_a_process_of_its_own(network):
    # Nothing of the interpreter's or of a library's stands beside it.
    done = foveapool("layers", "network.py:nothing", cwd=network.parent)
    assert done.returncode == 2 and done.stdout == ""
    assert "has no 'nothing'" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import math\nclass Net(\n", r"SyntaxError: .*\(broken\.py, line 2\)"),
        ("def half():\n    1 / 0\n\nhalf()\n", r"ZeroDivisionError: .*broken\.py, line 4\)"),
        ("import torch\ntorch.ones(2) @ torch.ones(3)", r"RuntimeError: .*broken\.py, line 2\)"),
    ],
)
def test_what_is_wrong_in_a_file_of_ones_own_is_said_with_its_line(tmp_path, text, said):
    path = tmp_path / "broken.py"
    path.write_text(text, "utf-8")
    done = CliRunner().invoke(application(), ["layers", f"{path}:Net"])
    assert done.exit_code == 2, done.exception
    assert done.stderr.startswith(f"error: network: {path} cannot be loaded: ")
    assert re.search(said, done.stderr) and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["typer", "rich"])
def test_without_the_extra_the_command_says_what_to_install(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SystemExit, match=rf"{name} is not installed; pip install .*\[cli\]'"):
        main()


def test_a_module_that_is_not_there_is_one_line():
    done = CliRunner().invoke(application(), ["layers", "absent:Net"])
    assert done.exit_code == 2, done.exception
    assert "absent cannot be loaded: ModuleNotFoundError: No module named 'absent'" in done.stderr


@pytest.fixture
def few_digits(monkeypatch):
    """Few images under whatever name is asked for."""
    few = load_data("street-digits", train_size=160, test_size=20)
    spec._load_source.cache_clear()
    for module in (spec, train):
        monkeypatch.setattr(module, "load_data", lambda *words: few)
    yield
    spec._load_source.cache_clear()


@pytest.mark.usefixtures("few_digits")
def test_a_run_is_trained_and_fitted_from_its_folder(tmp_path):
    run, runner = tmp_path / "run", CliRunner()
    words = ["cnn", "street-digits", "--out", str(run), "--epochs", "1", "--batch-size", "32"]
    done = runner.invoke(application(), ["train", *words, "--width", "4", "--device", "cpu"])
    assert done.exit_code == 0, done.output
    words = ["--layer", "2", "--alpha", "5", "--norm", "l1", "--report", "5,25"]
    done = runner.invoke(application(), ["fit", str(run), *words, "--device", "cpu"])
    assert done.exit_code == 0, done.output
    operator = fp.PoolingOperator.load(run / "operator-2.safetensors")
    assert operator.in_shape == (16, 16) and operator.settings.alpha == 5
    assert operator.summary() in done.output
    elsewhere = tmp_path / "new" / "folder" / "operator.safetensors"
    words = ["fit", str(run), "--layer", "2", "--device", "cpu", "--out", str(elsewhere)]
    assert runner.invoke(application(), words).exit_code == 0 and elsewhere.is_file()
    done = runner.invoke(application(), ["fit", str(run), "--norm", "l3", "--device", "cpu"])
    assert done.exit_code == 2 and "norm: got 'l3'" in done.output


def test_bench_shows_a_line_a_layer(monkeypatch):
    monkeypatch.setattr(bench, "LAYERS", ((4, 8), (8, 4)))
    words = ["bench", "--images", "60", "--batch", "4", "--device", "cpu"]
    done = CliRunner().invoke(application(), words)
    assert done.exit_code == 0, done.output
    assert "4 x 8 x 8" in done.output and "8 x 4 x 4" in done.output
