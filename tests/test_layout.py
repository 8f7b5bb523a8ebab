"""The shape of the project: what may import what, how long a file may be, what no file may say."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "foveapool"

HEAVY = {"scipy", "matplotlib", "PIL", "rich", "typer", "pandas", "transformers", "huggingface_hub"}
LONGEST = 500

# A room is a folder or a module directly under the package, with the rooms it may know.
# "foveapool" is the package itself: importing it from a room below would close a circle.
PARTS = {
    "_io",
    "_memory",
    "_stored_names",
    "_eval_mode",
    "_suggest",
    "pooling",
    "surgery",
    "networks",
    "data",
    "training",
}
PARTS |= {"robustness", "known_trainings", "labels", "records", "runs", "statistics", "tabular"}
ROOMS = {
    "_io": set(),
    "_memory": set(),
    "_pictures": {"_suggest"},
    "_eval_mode": set(),
    "_stored_names": set(),
    "_suggest": set(),
    "tabular": set(),
    "pooling": {"_io", "_memory", "_stored_names", "_suggest"},
    "surgery": {"_io", "_stored_names", "_eval_mode", "_suggest", "pooling"},
    "networks": {"_suggest", "pooling"},
    "data": {"_io", "_memory", "_pictures", "_suggest"},
    "training": {"_io", "_stored_names", "_eval_mode", "_suggest", "data", "pooling"},
    "robustness": {"_io", "_pictures", "_stored_names", "_eval_mode", "_suggest", "tabular"},
    "records": {"_io", "tabular"},
    "labels": {"_stored_names", "records"},
    "statistics": {"_suggest", "records"},
    "runs": {"_io"},
    "known_trainings": {"_io", "runs"},
    "study": PARTS,
    "report": {
        "_io",
        "_stored_names",
        "_suggest",
        "labels",
        "pooling",
        "records",
        "runs",
        "statistics",
        "tabular",
    },
    "foveapool": PARTS | {"study", "report"},
    "demo": PARTS | {"study", "report", "foveapool"},
    "cli": PARTS | {"study", "report", "foveapool", "demo"},
    "__main__": {"cli"},
}

# Folders of one person's machine, and the address of one registry.
PRIVATE = re.compile(r"(?<![\w.)}-])/(?:work|root|home|Users|opt)/|pypi\.org")


def heavy_modules(statement: str) -> set[str]:
    """The heavy modules that a statement loads into a fresh interpreter."""
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return HEAVY & set(done.stdout.split())


def names_imported(source: str, package: tuple[str, ...]) -> list[tuple[str, ...]]:
    """What a source file of a package, say ("foveapool", "pooling"), imports, in functions too."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = tuple(node.module.split(".")) if node.module else ()
            base = package[: len(package) - node.level + 1] if node.level else ()
            names += [(*base, *module, alias.name) for alias in node.names]
    return names


def rooms_imported(source: str, package: tuple[str, ...]) -> set[str]:
    """The rooms that a source file of a package imports."""
    ours = [name for name in names_imported(source, package) if name[0] == "foveapool"]
    return {name[1] if name[1:] and name[1] in ROOMS else "foveapool" for name in ours}


def crossings(package: Path) -> list[str]:
    """The imports that go against the rules, and the rooms that have none."""
    found = []
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package)
        room = "foveapool" if inside == Path("__init__.py") else inside.with_suffix("").parts[0]
        if room not in ROOMS:
            found.append(f"{inside}: no rule says what {room} may import; add one to ROOMS")
            continue
        imported = rooms_imported(path.read_text("utf-8"), ("foveapool", *inside.parent.parts))
        forbidden = imported - ROOMS[room] - {room}
        found += [f"{inside}: {room} may not import {other}" for other in sorted(forbidden)]
    return found


def circles(package: Path) -> list[str]:
    """The modules that import each other, and those that lead to them; none in a good tree."""
    modules = {}
    for path in package.rglob("*.py"):
        name = ("foveapool", *path.relative_to(package).with_suffix("").parts)
        modules[name[:-1] if name[-1] == "__init__" else name] = path
    knows = {}
    for name, path in modules.items():
        inside = name if path.name == "__init__.py" else name[:-1]
        found = names_imported(path.read_text("utf-8"), inside)
        # `from foveapool.a import b` imports the module b, or a name of the module a.
        knows[name] = {each if each in modules else each[:-1] for each in found} & modules.keys()
        knows[name].discard(name)
    while free := [name for name, others in knows.items() if not others & knows.keys()]:
        for name in free:
            del knows[name]
    return sorted(".".join(name) for name in knows)


def too_long(folder: Path) -> list[str]:
    """The source files that have grown beyond one idea."""
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in folder.rglob("*.py")}
    return [f"{path}: {n} lines, at most {LONGEST}" for path, n in lengths.items() if n > LONGEST]


def private_lines(paths: list[Path]) -> list[str]:
    """The lines that only make sense on one machine; files that are not text are passed over."""
    found = []
    for path in paths:
        try:
            lines = path.read_text("utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        found += [f"{path}:{i}: {s.strip()}" for i, s in enumerate(lines, 1) if PRIVATE.search(s)]
    return found


def tracked_files() -> list[Path]:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in done.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder


def test_import_is_light():
    assert heavy_modules("import foveapool") == set()


def test_a_heavy_import_is_noticed():
    assert heavy_modules("import scipy") == {"scipy"}


def test_imports_point_one_way():
    assert (PACKAGE / "__init__.py").is_file()
    assert crossings(PACKAGE) == []


@pytest.mark.parametrize(
    ("file", "line", "other"),
    [
        ("pooling/grid.py", "from ..surgery.find import x", "surgery"),
        ("pooling/solvers/pencil.py", "from ... import networks", "networks"),
        ("pooling/solve.py", "import foveapool.report", "report"),
        ("pooling/__init__.py", "from foveapool.data import x", "data"),
        ("surgery/find.py", "from foveapool import solve_pooling", "foveapool"),
        ("surgery/find.py", "import foveapool as fp", "foveapool"),
        ("networks/cnn.py", "from ..surgery import x", "surgery"),
        ("training/loop.py", "def f():\n    from foveapool import records", "records"),
        ("records.py", "from .pooling.operator import x", "pooling"),
        ("robustness/metrics.py", "from .. import records", "records"),
        ("report/page.py", "from ..study import x", "study"),
        ("demo.py", "from .cli import x", "cli"),
        ("__init__.py", "from . import cli", "cli"),
    ],
)
def test_a_crossing_is_noticed(tmp_path, file, line, other):
    (found,) = crossings(write(tmp_path, {file: line}))
    assert found.endswith(f"may not import {other}")


def test_a_room_without_a_rule_is_noticed(tmp_path):
    (found,) = crossings(write(tmp_path, {"helpers/text.py": "import math"}))
    assert "no rule says what helpers may import" in found


def test_allowed_imports_pass(tmp_path):
    files = {
        "__init__.py": "from .pooling.grid import x\nfrom foveapool import surgery",
        "pooling/grid.py": "import torch\nfrom . import scatter\nfrom .solvers.dense import x",
        "pooling/solvers/pencil.py": "from ..grid import x\nfrom .. import scatter",
        "surgery/find.py": "from foveapool.pooling import x\nfrom foveapool import pooling",
        "study/rows.py": "from .. import pooling, records, robustness, surgery",
        "demo.py": "import foveapool as fp\nfrom .report.figures import x",
        "cli/main.py": "import foveapool.demo\nfrom ..study import x",
    }
    assert crossings(write(tmp_path, files)) == []


def test_no_module_imports_one_that_imports_it():
    assert circles(PACKAGE) == []


@pytest.mark.parametrize("line", ["from foveapool.a.two import x", "from . import two"])
def test_a_circle_is_noticed_even_within_functions(tmp_path, line):
    files = {
        "a/one.py": f"def f():\n    {line}",
        "a/two.py": "from foveapool.b import x",
        "b.py": "from .a.one import f",
        "c.py": "import torch",
    }
    assert circles(write(tmp_path, files)) == ["foveapool.a.one", "foveapool.a.two", "foveapool.b"]


def test_files_are_short():
    assert too_long(PACKAGE) == []


def test_a_long_file_is_noticed(tmp_path):
    write(tmp_path, {"long.py": "x = 1\n" * (LONGEST + 1), "short.py": "x = 1\n" * LONGEST})
    (found,) = too_long(tmp_path)
    assert "long.py" in found


def test_no_tracked_file_names_one_machine():
    assert private_lines(tracked_files()) == []


@pytest.mark.parametrize("start", ["", "see ", "(", '"', "file://"])
@pytest.mark.parametrize("folder", ["work", "root", "home"])
def test_an_absolute_path_is_noticed(tmp_path, start, folder):
    write(tmp_path, {"note.md": f"first\n{start}/{folder}/thing"})
    (found,) = private_lines([tmp_path / "note.md"])
    assert "note.md:2:" in found


def test_a_registry_is_noticed(tmp_path):
    write(tmp_path, {"note.md": "https://" + "pypi" + ".org/simple"})
    assert len(private_lines([tmp_path / "note.md"])) == 1


def test_relative_paths_and_binary_files_pass(tmp_path):
    write(tmp_path, {"note.md": "docs/work/x, ./root/x, $(HERE)/home/x, /usr/bin/env"})
    (tmp_path / "image.png").write_bytes(b"\x89PNG /" + b"root/x")
    assert private_lines([tmp_path / "note.md", tmp_path / "image.png"]) == []
