"""What docs/architecture.md and CONTRIBUTING say of the tree is true."""

import re
from pathlib import Path

from .test_layout import ROOMS

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "foveapool"
TEXT = (ROOT / "docs" / "architecture.md").read_text("utf-8")
FOLDERS = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}


def named_files(text: str) -> list[str]:
    return re.findall(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|md|yml|csv))`", text)


def is_there(name: str) -> bool:
    return any((folder / name).is_file() for folder in (ROOT, PACKAGE))


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_files_that_are_named_exist():
    written = set(named_files(section("What is on disk"))) - {"_stored_names.py", "records.py"}
    contributing = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    named = set(named_files(TEXT + contributing)) - written
    assert len(named) > 25
    assert {name for name in named if not is_there(name)} == set()


def test_a_file_that_is_gone_would_be_noticed():
    assert named_files("see `pooling/gone.py`, `x.py:1` and `.save`") == ["pooling/gone.py"]
    assert not is_there("pooling/gone.py")


def test_each_step_names_what_its_file_has():
    lines = re.findall(r"^\|.*\| `([\w.]+)` \| `([\w/]+\.py)` \|$", TEXT, flags=re.M)
    assert len(lines) > 7
    for function, file in lines:
        name = function.rpartition(".")[2]
        text = (PACKAGE / file).read_text("utf-8")
        assert re.search(rf"(def|class) {name}\b", text), f"{function} is not in {file}"


def test_each_room_stands_in_the_table_with_what_it_may_import():
    told = dict(
        re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", section("The rooms"), flags=re.M)
    )
    assert set(told) == FOLDERS
    for room, names in told.items():
        allowed = ROOMS[room] & FOLDERS - {room}
        wanted = {"-": set(), "all": FOLDERS - {room}}.get(names, set(names.split(", ")))
        assert allowed == wanted, room


def test_what_is_added_takes_three_files_at_most():
    additions = re.findall(r"\n## Adding ([^\n]+)\n(.*?)(?=\n## |\Z)", TEXT, flags=re.S)
    assert len(additions) >= 5
    for what, text in additions:
        steps = re.findall(r"^\d+\. ", text, flags=re.M)
        assert 1 < len(steps) <= 3, what
