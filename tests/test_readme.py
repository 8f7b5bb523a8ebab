"""The README's lines are run as a newcomer would run them."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_python_of_the_readme_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (block,) = python_blocks(README)
    names: dict[str, object] = {}
    exec(compile(block, "README.md", "exec"), names)
    said = capsys.readouterr().out
    assert "S_b/S_w" in said
    assert "2: Conv2d -> mix LinearPool2d((32, 32) -> (16, 16), components=9" in said
    assert (tmp_path / "adapter" / "adapter_config.json").is_file()


def test_maps_alone_are_enough(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for block in python_blocks(README.parent / "docs/tutorials/from-maps.md"):
        exec(compile(block, "from-maps.md", "exec"), {})
    assert "torch.Size([500, 64, 8, 8])" in capsys.readouterr().out
    assert (tmp_path / "pooling.safetensors").is_file()


def python_blocks(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text("utf-8"), flags=re.S)


def test_the_readme_takes_three_minutes_to_read():
    prose = re.sub(
        r"<!-- table.*?<!-- end -->|```.*?```", "", README.read_text("utf-8"), flags=re.S
    )
    assert len(prose.split()) <= 700


def test_the_ten_lines_are_ten_lines():
    (first,) = python_blocks(README)
    assert len([line for line in first.splitlines() if line.strip()]) <= 10


def test_the_first_screen_says_what_why_how_how_much_and_when_not():
    screen = "\n".join(README.read_text("utf-8").splitlines()[:60])
    what = "replaces downsampling in a convolutional network"
    why = "separate the classes best"
    install = "\n    pip install '.[study]'"
    gain = "\n| closed form behind every convolution | 12.84 "
    not_when = (
        "**Where it loses.**",
        "\n## When to use it, and when not\n\n- **Use it**",
        "**Not where",
    )
    parts = (what, why, install, gain, *not_when)
    assert [part for part in parts if part not in screen] == []
    lines = screen.splitlines()
    assert lines.index("## Ten lines") < 50 and screen.count("```") == 2


def test_the_readme_names_only_figures_of_its_results():
    text = README.read_text("utf-8")
    first = re.search(r"<!-- table forms_readme -->(.*?)<!-- end -->", text, flags=re.S)[1]
    prose = re.search(r"\*\*Where it loses\.\*\*.*", text)[0]
    more = (README.parent / "docs/results.md").read_text("utf-8")
    tables = "".join(re.findall(r"<!-- table.*?<!-- end -->", more, flags=re.S))
    assert "9.35 +- 0.29" in tables and "9.35 %" in prose
    shown = set(re.findall(r"\d+\.\d\d|\b\d{2,3}\b(?= million|\.$)", prose))
    assert {"9.35", "9.44", "267", "2.28"} <= shown
    known = set(re.findall(r"[\d.]+", first + tables))
    assert shown - known == set()


def test_the_picture_is_described_by_the_figures_it_shows():
    alt = re.search(r"!\[(Test error .*?)\]\(docs/images/gain\.png\)", README.read_text("utf-8"))[1]
    card = (README.parent / "docs/method-card.md").read_text("utf-8")
    lines = re.findall(r"^\| (\S.*?) \| ([\d.]+) \+- [\d.]+ \| ([\d.]+) \+-", card, flags=re.M)
    errors = {name.split(",")[0]: (float(cnn), float(resnet)) for name, cnn, resnet in lines}
    names = (
        "strided convolutions",
        "BlurPool behind every convolution",
        "closed form behind every convolution",
    )
    wanted = [errors[name][at] for at in (0, 1) for name in names]
    said = [float(found) for found in re.findall(r"\b\d+\.\d\b", alt)]
    assert said == [pytest.approx(error, abs=0.0501) for error in wanted]


def test_what_the_readme_points_to_exists():
    assert targets_of(README)
    assert [target for target in targets_of(README) if not target.exists()] == []


def test_what_the_documents_point_to_exists():
    documents = sorted((README.parent / "docs").rglob("*.md"))
    missing = [(each.name, to) for each in documents for to in targets_of(each) if not to.exists()]
    assert missing == []


def test_headings_that_are_pointed_to_exist():
    missing = []
    for each in [README, *sorted((README.parent / "docs").rglob("*.md"))]:
        for path, heading in re.findall(
            r"\]\((?!https?:)([^)#]*)#([^)]+)\)", each.read_text("utf-8")
        ):
            target = each.parent / path if path else each
            if heading not in headings_of(target):
                missing.append((each.name, path, heading))
    assert missing == []


def targets_of(path: Path) -> list[Path]:
    """The files that a document points to."""
    found = re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", path.read_text("utf-8"))
    return [path.parent / target for target in found]


def headings_of(path: Path) -> set[str]:
    """What GitHub calls the headings of a document in links."""
    titles = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
