"""The benchmarks are not run here, but what they import must be there, and the tables be true."""

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def run_there(code: str, *arguments: Path) -> None:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_benchmark_finds_what_it_imports():
    names = sorted(path.stem for path in BENCHMARKS.glob("*.py"))
    assert "figures" in names and "study" in names
    makers = sorted(path.stem for path in (BENCHMARKS / "assets").glob("*.py"))
    run_there(
        f"import {', '.join(names)}\n"
        "import sys; sys.path.append('assets')\n"
        f"import {', '.join(makers)}"
    )


def test_the_tables_of_the_documents_are_those_of_the_results_and_all_of_them():
    run_there(
        "import re\n"
        "from figures import fill_tables, list_documents\n"
        "from tables import TABLES\n"
        "shown = set()\n"
        "for each in list_documents():\n"
        "    text = each.read_text()\n"
        "    assert fill_tables(text) == text, f'{each.name}: run make results'\n"
        "    shown |= set(re.findall(r'<!-- table (\\w+) -->', text))\n"
        "assert shown == set(TABLES), shown ^ set(TABLES)"
    )


def test_the_badges_say_what_the_project_says():
    run_there(
        "from pathlib import Path\n"
        "from pictures import draw_badges, read_badges\n"
        "from figures import ROOT\n"
        "images, readme = ROOT / 'docs/images', (ROOT / 'README.md').read_text()\n"
        "shown = {each.name: each.read_text() for each in images.glob('badge-*.svg')}\n"
        "assert len(read_badges()) == len(shown) == 4\n"
        "for file, (name, value) in read_badges().items():\n"
        "    assert f'![{name} {value}](docs/images/{file})' in readme, file\n"
        "    assert f'>{value}</text>' in shown[file], f'{file}: run make results'"
    )


def test_a_measurement_that_was_repeated_replaces_the_one_before(tmp_path):
    run_there(
        "import shutil, sys; from pathlib import Path\n"
        "from tables import TABLES, rows\n"
        "from foveapool.records import append_rows, read_benchmark_rows, read_rows\n"
        "make = lambda: {name: table() for name, table in TABLES.items()}\n"
        "before, copy = make(), Path(sys.argv[1]) / 'results'\n"
        "shutil.copytree(rows.RESULTS, copy); rows.RESULTS = copy\n"
        "for path in copy.glob('[!.]*.csv'):\n"
        "    is_benchmark = path.read_text().startswith('benchmark,')\n"
        "    append_rows(path, (read_benchmark_rows if is_benchmark else read_rows)(path))\n"
        "assert make() == before",
        tmp_path,
    )
