"""The benchmarks are not run here, but what they import must be there."""

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
