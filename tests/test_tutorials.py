"""The tutorials are run as a reader would run them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import foveapool as fp

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"


def blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (TUTORIALS / name).read_text("utf-8"), flags=re.S)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("your-own-network.md", "5: Conv2d -> replace LinearPool2d((16, 16) -> (8, 8)"),
        ("mix.md", "5: Conv2d -> mix LinearPool2d((16, 16) -> (8, 8), components=9"),
        ("fine-tune-after.md", "7: MaxPool2d -> after LinearPool2d((16, 16) -> (8, 8)"),
    ],
)
def test_the_lines_of_a_tutorial_run(name, wanted, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(name):
        exec(compile(block, name, "exec"), names)
    assert wanted in capsys.readouterr().out
    if name == "fine-tune-after.md":
        assert 0.2 < names["before"] < names["after"]
    if name == "mix.md":
        assert names["trained"] == names["parameters"]


def test_two_processes_fit_what_one_does(tmp_path):
    (script,) = blocks("two-processes.md")
    (tmp_path / "fit_shards.py").write_text(script, "utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    operators = []
    for processes in (2, 1):
        done = subprocess.run(
            [*command, str(processes), "fit_shards.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        operators.append(fp.PoolingOperator.load(tmp_path / "operator-0.safetensors"))
    other = fp.PoolingOperator.load(tmp_path / "operator-1.safetensors")
    two, one = operators
    assert torch.equal(two.weight, other.weight)
    torch.testing.assert_close(two.weight, one.weight, rtol=0, atol=1e-4)
