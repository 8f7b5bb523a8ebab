"""`foveapool results`: several studies in one table, and by --ranking who wins among them."""

import csv
import io
import json
from dataclasses import replace

import pytest
from scipy import stats
from typer.testing import CliRunner

from foveapool.cli.main import application
from foveapool.records import ERROR, VALIDATION, Row, append_rows, summarize_values
from foveapool.study.rows import DIVERGED

BEST, OTHER = (20.0, 21.5, 20.25), (40.0, 41.0, 39.5)


def ranked(*words, code=0):
    """What the command prints, or the error that it ends with."""
    # A terminal wide enough for a table.
    runner = CliRunner(env={"COLUMNS": "200"})
    done = runner.invoke(application(), ["results", *map(str, words), "--ranking"])
    assert done.exit_code == code, done.output
    return done.stderr if code else done.stdout


@pytest.fixture
def files(tmp_path):
    """Two studies that share their baseline, a file each."""
    where = {"metric": ERROR, "network": "cnn", "data": "svhn", "seeds": "0-2"}
    base = Row(study="one", pooling="baseline", **summarize_values(OTHER), **where)
    best = Row(study="two", pooling="sgd", layer="2", **summarize_values(BEST), **where)
    append_rows(tmp_path / "one.csv", [base])
    append_rows(tmp_path / "two.csv", [replace(base, study="two"), best])
    return tmp_path / "one.csv", tmp_path / "two.csv"


def test_studies_are_ranked_together_and_what_they_share_stands_once(files):
    header, first, second = csv.reader(io.StringIO(ranked(*files, "--format", "csv")))
    assert first[header.index("pooling")] == "P by SGD"
    assert second[header.index("pooling")] == "strided convolution"
    assert second[header.index("p")] == f"{stats.ttest_rel(OTHER, BEST).pvalue:.2g}"


@pytest.mark.parametrize("form", ["terminal", "markdown", "latex"])
def test_every_format_has_the_difference(files, form):
    shown = ranked(*files, "--format", form).replace(r"$\pm$", "+-")
    gaps = [a - b for a, b in zip(OTHER, BEST, strict=True)]
    assert f"{sum(gaps) / 3:.2f} +- {stats.tstd(gaps):.2f}" in shown
    assert shown.index("P by SGD") < shown.index("strided convolution")


def test_each_line_names_its_study_where_there_are_several(files):
    def table(*given):
        words = ["results", *map(str, given), "--format", "csv"]
        return list(csv.DictReader(io.StringIO(CliRunner().invoke(application(), words).stdout)))

    told = [(line["study"], line["pooling"]) for line in table(*files)]
    plain = "strided convolution"
    assert told == [("one", plain), ("two", plain), ("two", "P by SGD")]
    assert "study" not in table(files[1])[0]


def test_claims_can_be_counted_below_it(files):
    assert "CNN: closed form below the baseline" in ranked(*files, "--claims", "--format", "csv")


def test_a_search_is_not_ranked(files):
    said = ranked(*files, "--selection", code=2)
    assert said.startswith("error: ranking, selection: got both, wanted one of them")


@pytest.mark.parametrize(
    ("option", "metric"), [(None, ERROR), ("--ranking", ERROR), ("--selection", VALIDATION)]
)
def test_rows_of_other_metrics_are_one_line(tmp_path, option, metric):
    append_rows(tmp_path / "rows.csv", [Row("s", "seconds to fit", 1.0, 0.1, 3)])
    words = ["results", str(tmp_path / "rows.csv"), *([option] if option else [])]
    done = CliRunner().invoke(application(), words)
    assert done.exit_code == 2 and done.stdout == ""
    assert done.stderr.startswith(f"error: rows: got none of {metric!r} among 1")


def test_claims_are_counted_of_test_errors_beside_a_search_too(tmp_path):
    where = {"study": "table1-svhn", "network": "cnn", "data": "svhn", "epochs": "2"}
    study = tmp_path / "runs" / "studies" / "table1-svhn"
    study.mkdir(parents=True)
    (study / "study.json").write_text("{}")
    errors = {"baseline": 5.0, "closed-form": 4.0}
    append_rows(
        study / "rows.csv",
        [Row(metric=ERROR, mean=e, std=0.1, n=3, pooling=p, **where) for p, e in errors.items()],
    )
    append_rows(study / "selection.csv", [Row(metric=VALIDATION, mean=6.0, std=0.1, n=3, **where)])
    words = ["results", str(study), "--selection", "--claims", "--format", "csv"]
    done = CliRunner().invoke(application(), words)
    assert done.exit_code == 0, done.output
    assert "validation error %" in done.stdout
    assert any(
        line.startswith("CNN: closed form below the baseline") and line.endswith("1 of 1")
        for line in done.stdout.splitlines()
    )


def test_a_study_without_a_search_is_said_to_have_none(tmp_path):
    def said(searches):
        note = {"facts": {"searches": searches}}
        (tmp_path / "study.json").write_text(json.dumps(note))
        done = CliRunner().invoke(application(), ["results", str(tmp_path), "--selection"])
        assert done.exit_code == 2
        return done.stderr

    assert said([]).startswith(f"error: {tmp_path}: got no [[search]], wanted a study that has one")
    assert said([{"pooling": "closed-form"}]).endswith("no finished table in it yet\n")


def test_columns_that_cost_go_first_on_a_narrow_terminal(files):
    costs = [("parameters", 2e6), ("multiply-adds an image", 3e8), ("seconds a training", 7.5)]
    where = {"study": "two", "network": "cnn", "data": "svhn"}
    for pooling, layer, factor in (("baseline", "", 1), ("sgd", "2", 2)):
        more = [
            Row(
                metric=name,
                pooling=pooling,
                layer=layer,
                **summarize_values([factor * value]),
                **where,
            )
            for name, value in costs
        ]
        append_rows(files[1], more)

    def shown(columns, *words):
        runner = CliRunner(env={"COLUMNS": columns})
        return runner.invoke(application(), ["results", str(files[1]), *words])

    whole = shown("200").stdout
    width = max(map(len, whole.splitlines()))
    assert "10^6 parameters" in whole and "15.0" in whole
    narrow = shown(str(width - 1))
    assert "15.0" not in narrow.stdout and "10^6 parameters" in narrow.stdout
    assert narrow.stderr.startswith("note: s: left out on") and "--wide" in narrow.stderr
    least = shown("20")
    assert "s, 10^6 mult-adds, 10^6 parameters" in least.stderr
    assert "error %" in least.stdout and "20.58 +- 0.80" in least.stdout
    assert shown("20", "--wide").stdout == whole
    # What was set is joined before a line runs beyond the window.
    assert max(map(len, shown("55").stdout.splitlines())) <= 55 < width
    words = " ".join(shown("55").stdout.split())
    assert "setting" in words and "P by SGD, layer 2" in words and "20.58 +- 0.80" in words
    assert "10^6 parameters" in shown(None).stdout  # a file or a pipe has room


def test_names_in_brackets_are_printed_as_they_are(tmp_path):
    row = Row("s", ERROR, 1.0, 0.1, 3, network="cnn", data="npz:/data/[v2]/a.npz", pooling="max")
    append_rows(tmp_path / "rows.csv", [row, replace(row, data="npz:/data/a[/v1]:key:")])
    runner = CliRunner(env={"COLUMNS": "200"})
    shown = runner.invoke(application(), ["results", str(tmp_path / "rows.csv")]).stdout
    assert "npz:/data/[v2]/a.npz" in shown and "npz:/data/a[/v1]:key:" in shown


def test_a_table_is_of_the_lines_that_are_whole_and_names_the_others(tmp_path):
    path = tmp_path / "rows.csv"
    append_rows(path, [Row("s", ERROR, 1.0, 0.1, 3, pooling=name) for name in ("max", "blur")])
    path.write_text(path.read_text() + "s,test err")
    done = CliRunner().invoke(application(), ["results", str(path), "--format", "csv"])
    assert done.exit_code == 0 and len(done.stdout.splitlines()) == 3
    assert f"note: {path}: line 4: got fewer cells" in done.stderr


def test_errors_that_hold_diverged_trainings_are_said_to(tmp_path):
    path, where = tmp_path / "rows.csv", {"network": "cnn", "data": "svhn", "pooling": "baseline"}

    def told(*rows):
        append_rows(path, rows)
        done = CliRunner().invoke(application(), ["results", str(path), "--format", "csv"])
        assert len(done.stdout.splitlines()) == 2
        return done.stderr

    wild = Row("one", ERROR, **summarize_values((100.0, 40.0, 100.0)), **where)
    text = told(wild, Row("one", DIVERGED, 2, 0.0, 3, **where))
    assert text.startswith("note: strided convolution: 2 of 3 trainings diverged")
    # At a lower rate, say: rows do not tell the rate, and nothing takes the other row's place.
    assert told(replace(wild, **summarize_values(OTHER))) == ""
