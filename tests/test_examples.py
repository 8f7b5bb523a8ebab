"""The examples run as they stand, small; the notebook's pictures are those that it draws."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
NOTEBOOK = EXAMPLES / "looking_at_a_pooling.ipynb"


def read_main(name):
    return runpy.run_path(str(EXAMPLES / name))["main"]


@pytest.mark.soak
def test_street_digits_compares_three_poolings(capsys):
    errors = read_main("street_digits.py")(["--images", "200", "--epochs", "1"])
    assert list(errors) == ["strided convolution", "BlurPool", "closed form, mix"]
    assert all(0 <= error <= 100 for error in errors.values())
    assert "6: Conv2d -> mix LinearPool2d((16, 16) -> (8, 8)" in capsys.readouterr().out


def test_which_alpha_draws_a_picture_for_each(tmp_path, capsys):
    command = ["--images", "200", "--alphas", "25", "400", "--out", str(tmp_path)]
    written = read_main("which_alpha.py")(command)
    assert [path.name for path in written] == ["radius.png", "alpha-25.png", "alpha-400.png"]
    assert all(path.stat().st_size > 10_000 for path in written)
    assert "times average" in capsys.readouterr().out


def test_every_example_stands_in_the_list():
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    files = [*EXAMPLES.glob("*.ipynb")]
    files += [path for path in EXAMPLES.glob("*.py") if "\ndef main(" in path.read_text("utf-8")]
    assert [path.name for path in files if f"examples/{path.name}" not in listed] == []
    assert len(files) >= 3


def pictures_of(notebook):
    """The code cells that have a picture among their outputs."""
    outputs = {
        cell.id: [set(output.get("data", ())) for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    }
    return {name for name, kinds in outputs.items() if any("image/png" in each for each in kinds)}


@pytest.mark.soak
def test_the_notebook_runs_and_draws_what_it_shows(tmp_path):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    stored, fresh = (nbformat.read(NOTEBOOK, as_version=4) for _ in range(2))
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    nbclient.NotebookClient(
        fresh, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert pictures_of(fresh) == pictures_of(stored)
    assert len(pictures_of(stored)) >= 4
