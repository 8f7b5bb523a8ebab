"""The README's lines are run as a newcomer would run them."""

import re
from pathlib import Path

from foveapool.data.street_digits import street_digits
from foveapool.networks.build import build

README = Path(__file__).parents[1] / "README.md"


def newcomer() -> dict[str, object]:
    """What the first lines take for granted: a network, images, a loader, a training."""
    scenes = street_digits(200)
    images = (scenes.images.float() - 128) / 64
    loader = list(zip(images.split(50), scenes.labels.split(50), strict=True))
    model = build("cnn", seed=0, width=4)
    trained: list[object] = []
    return {"model": model, "images": images, "loader": loader, "train_again": trained.append}


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.S)
    assert len(blocks) >= 2
    names: dict[str, object] = newcomer()
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    said = capsys.readouterr().out
    assert "torch.Size([500, 64, 8, 8])" in said
    assert "S_b/S_w" in said
    assert (tmp_path / "pooling.safetensors").is_file()
    assert (tmp_path / "adapter" / "adapter_config.json").is_file()


def test_the_ten_lines_are_ten_lines():
    first = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.S)[0]
    assert len([line for line in first.splitlines() if line.strip()]) <= 10


def test_what_the_readme_points_to_exists():
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", README.read_text())
    assert targets
    assert [target for target in targets if not (README.parent / target).exists()] == []
