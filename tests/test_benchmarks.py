"""The benchmarks are not run here, but what they import must be there, and the tables be true."""

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_every_benchmark_finds_what_it_imports():
    names = sorted(path.stem for path in BENCHMARKS.glob("*.py"))
    assert "figures" in names and "study" in names
    command = [sys.executable, "-c", f"import {', '.join(names)}"]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_tables_of_the_documents_are_those_of_the_results():
    code = (
        "from figures import documents, filled\n"
        "for each in documents():\n"
        "    text = each.read_text()\n"
        "    assert filled(text) == text, f'{each.name}: run make results'"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=BENCHMARKS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_measurement_that_was_repeated_replaces_the_one_before(tmp_path):
    code = (
        "import shutil, sys; from pathlib import Path\n"
        "import told; from choices_tables import CHOICES_TABLES as choices\n"
        "from endured_tables import ENDURED_TABLES as endured\n"
        "from results_tables import RESULTS_TABLES as results\n"
        "from foveapool.records import append_rows, read_benchmark_rows, read_rows\n"
        "all_of_them = {**choices, **endured, **results}\n"
        "tables = lambda: {name: table() for name, table in all_of_them.items()}\n"
        "before, copy = tables(), Path(sys.argv[1]) / 'results'\n"
        "shutil.copytree(told.RESULTS, copy); told.RESULTS = copy\n"
        "for path in copy.glob('*.csv'):\n"
        "    is_benchmark = path.read_text().startswith('benchmark,')\n"
        "    append_rows(path, (read_benchmark_rows if is_benchmark else read_rows)(path))\n"
        "assert tables() == before"
    )
    command = [sys.executable, "-c", code, tmp_path]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
