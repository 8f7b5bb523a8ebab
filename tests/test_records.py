"""Rows: written once, read back as they were, by two processes at once if need be."""

import csv
import multiprocessing
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import fields
from importlib import metadata
from math import isnan
from pathlib import Path

import pytest

from foveapool import records
from foveapool.records import (
    COLUMNS,
    LESS,
    BenchmarkRow,
    Row,
    append_rows,
    check_rows_file,
    collect_provenance,
    name_hardware,
    read_benchmark_rows,
    read_rows,
    summarize_values,
)

RESULTS = sorted((Path(__file__).parents[1] / "results").glob("[!.]*.csv"))
OLD_HEADER = ",".join("deviation" if name == "std" else name for name in COLUMNS)


def row(**more):
    return Row(study="s", metric="error", mean=0.125, std=0.5, n=3, **more)


def test_rows_come_back_as_they_were(tmp_path):
    path = tmp_path / "deep" / "rows.csv"
    rows = [row(pooling='a "quoted", one'), row(layer="two\nlines")]
    append_rows(path, rows[:1])
    append_rows(path, rows[1:])
    assert read_rows(path) == rows
    assert path.read_text().count("study,metric") == 1


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_a_row_has_a_line_of_its_own_after_one_that_an_editor_left_open(tmp_path, end):
    path = tmp_path / "rows.csv"
    append_rows(path, [row()])
    path.write_bytes(path.read_bytes().removesuffix(b"\n") + end.encode())
    append_rows(path, [row(), row()])
    assert read_rows(path) == [row()] * 3


def test_the_mark_that_spreadsheets_put_in_front_is_passed_over(tmp_path):
    path = tmp_path / "rows.csv"
    append_rows(path, [row()])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_rows(path) == [row()]
    append_rows(path, [row(layer="2")])
    assert read_rows(path) == [row(), row(layer="2")]


def test_two_processes_lose_no_row_and_write_one_header(tmp_path):
    path = tmp_path / "rows.csv"
    code = (
        "import sys; from foveapool.records import Row, append_rows\n"
        "for i in range(40): append_rows(sys.argv[1], "
        "[Row('s', sys.argv[2], float(i), 0.0, 1)])"
    )
    jobs = [subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in "ab"]
    assert [job.wait() for job in jobs] == [0, 0]
    found = [(r.metric, r.mean) for r in read_rows(path)]
    assert sorted(found) == [(name, float(i)) for name in "ab" for i in range(40)]


def test_a_foreign_file_is_refused_with_its_columns(tmp_path):
    path = tmp_path / "foreign.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"foreign.csv.*'a', 'b'.*wanted"):
        read_rows(path)


def test_rows_of_benchmarks_come_back_from_files_of_their_own(tmp_path):
    path = tmp_path / "fit.csv"
    rows = [BenchmarkRow("fit", "s", 0.5, 0.1, 3, case="krylov", maps="N=64 M=16", options="=1")]
    append_rows(path, rows)
    append_rows(path, rows)
    assert read_benchmark_rows(path) == rows * 2
    with pytest.raises(ValueError, match=r"fit.csv: got columns \['benchmark'.*another kind"):
        read_rows(path)
    with pytest.raises(ValueError, match="another kind"):
        append_rows(path, [row()])
    with pytest.raises(TypeError, match="trainings and some of benchmarks"):
        append_rows(path, [*rows, row()])
    assert read_benchmark_rows(path) == rows * 2


def test_files_of_older_versions_are_read_and_go_on_with_the_columns_of_today(tmp_path):
    path = tmp_path / "rows.csv"
    append_rows(path, [row(layer="2")])
    there = path.read_text().splitlines()[1]
    path.write_text(f"{OLD_HEADER}\n{there}\n")
    check_rows_file(path)
    assert read_rows(path) == [row(layer="2")]
    append_rows(path, [row(layer="3")])
    assert path.read_text().splitlines()[:2] == [",".join(COLUMNS), there]
    assert read_rows(path) == [row(layer="2"), row(layer="3")]


@pytest.mark.parametrize("more", [10, 4000])
def test_a_full_disk_leaves_the_file_as_it_was(tmp_path, more):
    path = tmp_path / "rows.csv"
    append_rows(path, [row()])
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + more, limits[1]))
    try:
        with pytest.raises(OSError, match=r"nothing was written.*rows.csv"):
            append_rows(path, [row(layer="x" * 10_000)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir() if not each.name.startswith(".lock")] == [
        "rows.csv"
    ]
    append_rows(path, [row()])
    assert read_rows(path) == [row(), row()]


def test_a_process_killed_at_any_moment_leaves_the_rows_before_or_after(tmp_path):
    path = tmp_path / "rows.csv"
    append_rows(path, [row(layer="x" * 100_000)] * 3)

    def add():
        while True:
            append_rows(path, [row(layer="y")])

    for number in range(10):
        job = multiprocessing.get_context("fork").Process(target=add)
        job.start()
        time.sleep(0.01 + 0.002 * number)
        job.kill()
        job.join()
        assert {each.layer[0] for each in read_rows(path)} <= {"x", "y"}
    append_rows(path, [row()])
    assert len(read_rows(path)) > 2 and read_rows(path)[-1] == row()


FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-1.5 -2.5", "@SUM(1)", "\t=1", "'=1", "''+1", "=\n1"]


@pytest.mark.parametrize("cell", FORMULAS)
def test_a_spreadsheet_shows_cells_and_does_not_run_them(tmp_path, cell):
    path = tmp_path / "rows.csv"
    append_rows(path, [row(network=cell, pooling="'twas", layer="-", alpha="-2.5")])
    with open(path, newline="") as file:
        (found,) = csv.DictReader(file)
    assert found["network"] == f"'{cell}"
    assert [found[name] for name in ("pooling", "layer", "alpha")] == ["'twas", "-", "-2.5"]
    assert read_rows(path)[0].network == cell


def test_numbers_below_zero_stay_numbers(tmp_path):
    path = tmp_path / "rows.csv"
    values = summarize_values([-1.5, -2.5])
    append_rows(path, [Row("s", LESS, seeds="0-1", **values)])
    with open(path, newline="") as file:
        (found,) = csv.DictReader(file)
    assert (float(found["mean"]), found["values"]) == (-2.0, "'-1.5 -2.5")
    assert read_rows(path)[0].values == "-1.5 -2.5"


def test_broken_lines_are_named_and_the_others_read_without_them(tmp_path):
    path = tmp_path / "rows.csv"
    rows = [row(layer="1"), row(layer='a "quoted", one'), row(layer="3"), row(layer="4")]
    append_rows(path, rows)
    lines = path.read_text().splitlines(keepends=True)
    # Cut off in the cells of line 2, and inside the quotes of line 3.
    lines[1], lines[2] = lines[1][:20] + "\n", lines[2][: lines[2].index("quoted")] + "\n"
    path.write_text("".join(lines))
    said: list[str] = []
    assert read_rows(path, skip=said.append) == rows[2:]
    assert [re.search(r"rows.csv: line \d+", text)[0][-1] for text in said] == ["2", "3"]
    with pytest.raises(ValueError, match=r"rows.csv: line 2: got fewer cells"):
        read_rows(path)
    append_rows(path, [row(layer="5")], lambda given, there: given if there == rows[2:] else [])
    assert read_rows(path, skip=said.append) == [*rows[2:], row(layer="5")]


def test_a_line_that_no_row_can_be_is_passed_over(tmp_path):
    path = tmp_path / "rows.csv"
    append_rows(path, [row()])
    path.write_text(path.read_text() + 'x"' + "y" * 200_000 + '\n"' + "z" * 200_000 + "\n")
    append_rows(path, [row(layer="2")])
    said: list[str] = []
    assert read_rows(path, skip=said.append) == [row(), row(layer="2")]
    assert len(said) == 2 and "field larger than field limit" in said[1]


def test_what_is_no_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for use in (check_rows_file, lambda path: append_rows(path, [row()])):
        with pytest.raises(OSError, match=r"pipe: got what is no file"):
            use(tmp_path / "pipe")


def test_a_link_stays_one(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "rows.csv").symlink_to(tmp_path / "there" / "rows.csv")
    append_rows(tmp_path / "rows.csv", [row()])
    assert (tmp_path / "rows.csv").is_symlink()
    assert read_rows(tmp_path / "there" / "rows.csv") == [row()]


def test_rows_are_not_added_to_a_file_of_other_columns(tmp_path):
    path = tmp_path / "older.csv"
    path.write_text(",".join(COLUMNS[:-1]) + "\n")
    with pytest.raises(ValueError, match=r"older.csv: got columns.*Name another file"):
        append_rows(path, [row()])
    assert path.read_text().count("\n") == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0.25 0.5 0.75\n", "0.25 0.", "column values: got 2 measurements, wanted the 3"),
        (",,0.25 0.5 0.75\n", "", "got fewer cells than the header's"),
        ("0.75\n", "0.75,1\n", "got more cells than the header's"),
        ("0.125", "abc", "column mean: got 'abc', wanted a number"),
        (",3,", ",3.5,", "column n: got '3.5', wanted a number"),
    ],
)
def test_a_row_that_is_not_whole_is_refused_with_its_place(tmp_path, old, new, message):
    path = tmp_path / "rows.csv"
    append_rows(path, [row(layer="two\nlines"), row(values="0.25 0.5 0.75")])
    start, last = path.read_text().rsplit("s,error", 1)
    assert last.count(old) == 1
    path.write_text(f"{start}s,error{last.replace(old, new)}")
    with pytest.raises(ValueError, match=rf"rows.csv: line 4(,|:) {re.escape(message)}"):
        read_rows(path)


def test_what_is_no_text_is_named(tmp_path):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(b"\x80\xff\x00")
    for use in (read_rows, check_rows_file):
        with pytest.raises(ValueError, match=r"weights.safetensors: got what is no text.*CSV"):
            use(path)


def test_a_file_is_tried_without_being_made_or_changed(tmp_path):
    path = tmp_path / "deep" / "rows.csv"
    check_rows_file(path)
    assert list(tmp_path.iterdir()) == []
    append_rows(path, [row()])
    before = path.read_text()
    check_rows_file(path)
    assert path.read_text() == before
    with pytest.raises(PermissionError, match=r"more.csv: cannot be written, since .*rows.csv is"):
        check_rows_file(path / "more.csv")
    with pytest.raises(IsADirectoryError, match=r"deep: got a folder, wanted a CSV file"):
        check_rows_file(path.parent)


def test_provenance_fills_fields_of_a_row_and_names_this_machine():
    facts = collect_provenance()
    assert set(facts) <= {field.name for field in fields(Row)}
    assert all(facts.values())
    assert row(**facts).command.startswith("python ")


def repository(folder, *tracked):
    """A git repository with these files; the short name of its only commit."""
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]

    def git(*words):
        done = subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)
        return done.stdout.decode().strip()

    folder.mkdir(exist_ok=True)
    git("init", "-q")
    for name in tracked:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(str(folder))
        git("add", name)
    git("commit", "-q", "--allow-empty", "-m", "first")
    return git("rev-parse", "--short", "HEAD")


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_the_commit_is_that_of_this_code_wherever_it_is_called(tmp_path, monkeypatch):
    monkeypatch.delenv("FOVEAPOOL_COMMIT", raising=False)
    ours = repository(tmp_path / "ours", "src/foveapool/records.py", "docs/index.md")
    theirs = repository(tmp_path / "theirs")
    assert ours != theirs
    monkeypatch.chdir(tmp_path / "theirs")
    monkeypatch.setattr(records, "__file__", str(tmp_path / "ours/src/foveapool/records.py"))
    assert collect_provenance()["commit"] == ours
    (tmp_path / "ours/docs/index.md").write_text("changed")
    assert collect_provenance()["commit"] == ours
    (tmp_path / "ours/src/foveapool/new.py").write_text("changed")
    assert collect_provenance()["commit"] == f"{ours}-dirty"
    # Installed into an environment that lies in another project's folder.
    installed = tmp_path / "theirs/venv/foveapool/records.py"
    installed.parent.mkdir(parents=True)
    installed.write_text("")
    monkeypatch.setattr(records, "__file__", str(installed))
    assert collect_provenance()["commit"] == f"unknown, foveapool {metadata.version('foveapool')}"
    monkeypatch.setenv("FOVEAPOOL_COMMIT", "abc")
    assert collect_provenance()["commit"] == "abc"


def test_what_is_measured_on_the_processor_does_not_name_the_gpu(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device=None: f"GPU {device}")
    assert (
        name_hardware() == "GPU None" and collect_provenance("cuda:1")["hardware"] == "GPU cuda:1"
    )
    assert collect_provenance("cpu")["hardware"].endswith("cores")


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_every_published_row_says_where_it_comes_from(path):
    is_benchmark = path.read_text().startswith("benchmark,")
    rows = (read_benchmark_rows if is_benchmark else read_rows)(path)
    assert rows
    first = "benchmark" if is_benchmark else "study"
    for one in rows:
        wanted = (first, "metric", "command", "commit", "hardware", "torch", "date")
        assert [name for name in wanted if not getattr(one, name)] == []
        # One measurement, or a ratio of two means, has no deviation.
        alone = one.n == 1 or one.metric.startswith(("CE %", "flip rate %"))
        assert one.n >= 1 and (one.std >= 0 or (alone and isnan(one.std)))
        assert "dirty" not in one.commit and not one.commit.startswith("unknown")


def test_the_columns_are_those_of_the_design():
    wanted = (
        "study network data pooling layer placement form alpha norm components trainable metric "
        "mean std n seeds epochs batch command commit hardware torch date seconds values"
    )
    assert set(COLUMNS) == set(wanted.split())


def test_only_rows_that_the_file_is_found_to_lack_are_added(tmp_path):
    path = tmp_path / "rows.csv"
    one, other = (Row(study="s", metric=metric, mean=1.0, std=0.0, n=1) for metric in "ab")

    def lacking(rows, there):
        return [row for row in rows if row not in there]

    assert append_rows(path, [one], lacking) == 1
    assert append_rows(path, [one, other], lacking) == 1
    assert read_rows(path) == [one, other]
