"""The pages on other libraries are run as a reader would run them, where these can be imported."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "integrations"
# What each page needs. Lightning and the Trainer take seconds to import: `make test-soak`.
NEEDS = {
    "training.md": (),
    "export.md": ("onnxruntime", "onnxscript"),
    "lightning.md": ("lightning",),
    "hugging-face.md": ("transformers", "accelerate"),
    "timm-torchvision.md": ("torchvision", "timm"),
}
SLOW = ("lightning.md", "hugging-face.md", "timm-torchvision.md")


def blocks(name):
    text = (FOLDER / name).read_text("utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.S | re.M)


def skip_without(*modules):
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # a build for another torch says so in ways of its own
            pytest.skip(f"{module} cannot be imported: {error}")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.soak if name in SLOW else ()) for name in NEEDS],
)
def test_the_python_of_a_page_runs(name, tmp_path, monkeypatch):
    skip_without(*NEEDS[name])
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks(name):
        exec(compile(block, name, "exec"), names)


def test_every_page_is_known():
    pages = {path.name for path in FOLDER.glob("*.md")}
    assert pages == {*NEEDS, "index.md", "ddp.md"}
    assert [name for name in NEEDS if not blocks(name)] == []


@pytest.mark.soak
def test_two_processes_train_what_they_fitted_together(tmp_path):
    (script,) = blocks("ddp.md")
    (tmp_path / "train_shards.py").write_text(script, "utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*command, "--nproc-per-node", "2", "train_shards.py"],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "adapter" / "adapter_config.json").is_file()
