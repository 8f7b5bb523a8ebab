"""What docs/robustness.md says is true: its lines run, its names are all there, its links hold."""

import re
from pathlib import Path

from foveapool.robustness.corruptions import CORRUPTIONS
from foveapool.robustness.names import ALL_PERTURBATIONS
from foveapool.robustness.perturbations import PERTURBATIONS

DOCUMENT = Path(__file__).parents[2] / "docs" / "robustness.md"
TEXT = DOCUMENT.read_text("utf-8")


def section(title):
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_python_of_the_document_runs(capsys):
    for block in re.findall(r"```python\n(.*?)```", TEXT, flags=re.S):
        exec(compile(block, DOCUMENT.name, "exec"), {})
    said = capsys.readouterr().out
    assert "Corruptions, geometric: error % by severity" in said
    assert "| baseline | 1 |" in said and "Flip rate below 100" in said


def test_every_corruption_and_perturbation_is_told_once():
    lines = [line for line in section("The corruptions").splitlines() if line.startswith("| `")]
    lines = lines[: len(CORRUPTIONS)]
    for line, corruption in zip(lines, CORRUPTIONS.values(), strict=True):
        name = line.split("|")[1].strip()
        assert name.startswith(f"`{corruption.name}`")
        assert ("extra" in name) == (not corruption.standard)
        assert ("geometric" in name) == (corruption.standard and corruption.group == "geometric")
    lines = [line for line in section("The perturbations").splitlines() if line.startswith("| `")]
    told = {}
    for line in lines:
        names, frames = line.split("|")[1:3]
        told |= dict.fromkeys(re.findall(r"`(\w+)`", names), int(frames))
    assert told == {name: PERTURBATIONS[name].frames for name in ALL_PERTURBATIONS}


def test_what_the_document_points_to_exists():
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", TEXT)
    assert targets
    assert [target for target in targets if not (DOCUMENT.parent / target).exists()] == []
    for picture in ("corruptions.png", "perturbations.png"):
        assert (DOCUMENT.parent / "images" / picture).stat().st_size < 400_000
