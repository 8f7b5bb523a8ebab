"""The README's lines are run as a newcomer would run them."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.S)
    assert len(blocks) >= 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    said = capsys.readouterr().out
    assert "torch.Size([500, 64, 8, 8])" in said
    assert "S_b/S_w" in said
    assert (tmp_path / "pooling.safetensors").is_file()


def test_the_ten_lines_are_ten_lines():
    first = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.S)[0]
    assert len([line for line in first.splitlines() if line.strip()]) <= 10


def test_what_the_readme_points_to_exists():
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", README.read_text())
    assert targets
    assert [target for target in targets if not (README.parent / target).exists()] == []
