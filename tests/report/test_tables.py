"""Tables: errors beside the paper's, its claims counted, the same cells in every format."""

import csv
import io
import math
from dataclasses import replace

import pytest

from foveapool.records import ERROR, LESS, P_VALUE, VALIDATION, Row
from foveapool.report.tables import (
    Table,
    claims_table,
    error_table,
    find_differing_columns,
    format_spread,
    get_paper_error,
    latest_rows,
    load_paper_figures,
    selection_table,
)


def row(mean, metric=ERROR, std=0.5, **columns):
    usual = {"study": "s", "network": "cnn", "data": "svhn", "pooling": "baseline"}
    return Row(metric=metric, mean=mean, std=std, n=5, **{**usual, **columns})


def lines(table):
    return [dict(zip(table.header, line, strict=True)) for line in table.lines]


def test_a_line_has_the_error_the_papers_the_gain_and_the_costs():
    closed = {"pooling": "closed-form", "layer": "2", "alpha": "25", "norm": "l2"}
    rows = [
        row(10.5),
        row(9.875, **closed),
        row(-0.625, LESS, 0.25, **closed),
        row(0.0123, P_VALUE, **closed),
        row(123456, "parameters", **closed),
        row(12_300_000, "multiply-adds an image", **closed),
        row(4.25, "seconds a training", **closed),
    ]
    base, found = lines(error_table(rows))
    assert (base["error %"], base["paper"]) == ("10.50 +- 0.50", "10.68 +- 0.43")
    assert base["less baseline"] == base["p"] == base["layer"] == base["s"] == "-"
    assert found == {
        "network": "CNN",
        "data": "SVHN",
        "pooling": "closed form",
        "layer": "2",
        "placement": "-",
        "form": "-",
        "alpha": "25",
        "norm": "l2",
        "components": "-",
        "error %": "9.88 +- 0.50",
        "paper": "9.93 +- 0.47",
        "less baseline": "-0.62 +- 0.25",
        "p": "0.012",
        "n": "5",
        "10^6 parameters": "0.123",
        "10^6 mult-adds": "12.3",
        "s": "4.2",
    }


def test_the_papers_error_is_beside_its_own_form_alone():
    place = {"pooling": "closed-form", "layer": "2", "alpha": "25", "norm": "l2"}
    rows = [row(9.0, study="own", form=form, **place) for form in ("", "replace", "mix", "after")]
    found = {line["form"]: line["paper"] for line in lines(error_table(rows))}
    own = "9.93 +- 0.47"
    assert found == {"-": own, "replace": own, "mix": "-", "after": "-"}


def test_settings_of_a_search_that_differ_in_components_or_form_are_told_apart():
    place = {"metric": VALIDATION, "layer": "2", "alpha": "25", "norm": "l2", "epochs": "9"}
    rows = [
        row(9.0, components=components, form=form, **place)
        for components in ("4", "9")
        for form in ("mix", "replace")
    ]
    assert len({line[:-1] for line in selection_table(rows).lines}) == 4


def test_studies_and_settings_have_lines_of_their_own_in_the_order_they_came():
    rows = [row(1.0), row(2.0, study="t"), row(3.0, pooling="sgd", layer="3"), row(4.0, batch="64")]
    assert [line["error %"][0] for line in lines(error_table(rows))] == ["1", "2", "3", "4"]


def test_lines_of_other_studies_epochs_and_batches_are_told_apart():
    alike = row(1.0, epochs="15")
    assert find_differing_columns([alike, replace(alike, pooling="sgd")]) == ()
    rows = [alike, replace(alike, mean=2.0, study="t"), replace(alike, mean=3.0, epochs="150")]
    assert find_differing_columns(rows) == ("study", "epochs")
    found = lines(error_table(rows, find_differing_columns(rows)))
    assert [(line["study"], line["epochs"], line["error %"][0]) for line in found] == [
        ("s", "15", "1"),
        ("t", "15", "2"),
        ("s", "150", "3"),
    ]
    assert "study" not in error_table(rows).header


def test_of_the_same_measurement_the_last_one_counts():
    rows = [row(1.0), row(2.0, pooling="sgd"), row(3.0)]
    assert [each.mean for each in latest_rows(rows)] == [3.0, 2.0]
    assert [line["error %"][0] for line in lines(error_table(rows))] == ["3", "2"]


def test_one_trial_has_no_deviation():
    assert format_spread(3.14159, math.nan) == "3.14"
    assert format_spread(3.14159, 0.271, 1) == "3.1 +- 0.3"


def test_the_best_setting_of_a_search_stands_first_and_first_looks_last():
    rows = [
        row(9.0, VALIDATION, layer="1", alpha="5", norm="l1", epochs="150"),
        row(7.0, VALIDATION, layer="2", alpha="5", norm="l1", epochs="150"),
        row(1.0, VALIDATION, layer="3", alpha="5", norm="l1", epochs="15"),
        row(0.5, VALIDATION, layer="4", alpha="5", norm="l1", epochs=""),  # of who knows how many
    ]
    found = lines(selection_table(rows))
    assert [line["layer"] for line in found] == ["2", "1", "3", "4"]
    assert found[0]["validation error %"] == "7.00 +- 0.50" and found[0]["placement"] == "-"


def test_the_papers_figures_are_there_for_its_poolings_only():
    assert get_paper_error("cnn", "svhn-reduced", "closed-form") == (21.56, 0.525)
    assert get_paper_error("cnn", "svhn-reduced", "baseline") == (32.53, 0.284)
    assert get_paper_error("resnet18", "cifar10", "sgd") == (18.33, 2.612)
    assert get_paper_error("cnn", "street-digits", "baseline") is None
    assert get_paper_error("cnn", "svhn", "average") is None
    assert get_paper_error("cnn", "svhn", "closed-form, sign sum") is None


def test_the_paper_counts_as_it_says():
    # Its text: better "on the ResNet model in all settings and with the CNN model on both versions"
    # of SVHN; P by SGD is worse "in almost all cases".
    table1 = {(each["network"], each["data"]): each for each in load_paper_figures()["table1"]}
    sgd = {
        (each["network"], each["data"]): each["error"][0] for each in load_paper_figures()["sgd"]
    }
    assert len(table1) == len(sgd) == 8 and table1.keys() == sgd.keys()
    better = [key for key, each in table1.items() if each["error"][0] < each["baseline"][0]]
    assert sorted(better) == [
        ("cnn", "svhn"),
        ("cnn", "svhn-reduced"),
        *(("resnet18", data) for data in ("cifar10", "cifar100", "svhn", "svhn-reduced")),
    ]
    below = [key for key, each in table1.items() if each["error"][0] < sgd[key]]
    gains = [key for key, each in table1.items() if sgd[key] < each["baseline"][0]]
    found = {line["claim"]: line["paper"] for line in lines(claims_table([]))}
    assert found == {
        "ResNet: closed form below the baseline": "4 of 4",
        "CNN: closed form below the baseline": "2 of 4",
        "closed form below P by SGD": f"{len(below)} of 8",
        "P by SGD below the baseline": f"{len(gains)} of 8",
    }
    assert set(table1) - set(below) == {("cnn", "svhn")}


def test_our_own_rows_are_counted_the_same_way():
    def measured(network, data, **errors):
        names = {"base": "baseline", "closed": "closed-form", "sgd": "sgd"}
        studies = {"base": "table1-x", "closed": "table1-x", "sgd": "sgd-x"}
        same = {"network": network, "data": data}
        return [
            row(error, study=studies[key], pooling=names[key], **same)
            for key, error in errors.items()
        ]

    rows = [
        *measured("resnet18", "svhn", base=4.0, closed=3.0, sgd=3.5),
        *measured("resnet18", "cifar10", base=4.0, closed=4.0, sgd=18.0),
        *measured("cnn", "svhn", base=10.0, closed=11.0),
        # Another study varies what the paper fixed.
        row(1.0, study="ablations", network="cnn", data="cifar10"),
        row(0.5, study="ablations", network="cnn", data="cifar10", pooling="closed-form"),
    ]
    assert [line["ours"] for line in lines(claims_table(rows))] == [
        "1 of 2",
        "0 of 1",
        "2 of 2",
        "1 of 2",
    ]
    assert {line["ours"] for line in lines(claims_table([]))} == {"not measured"}


def test_the_papers_own_settings_are_counted_where_its_procedure_was_not_followed():
    same = {"study": "settings-x", "network": "cnn", "data": "svhn"}
    papers = {"pooling": "closed-form", "layer": "2", "alpha": "25", "norm": "l2", **same}
    rows = [
        row(10.0, pooling="baseline", **same),
        row(11.0, **papers),
        row(9.0, **{**papers, "alpha": "400"}),  # another setting than the paper's
    ]
    counted = {line["claim"]: line["ours"] for line in lines(claims_table(rows))}
    assert counted["CNN: closed form below the baseline"] == "0 of 1"
    followed = {**papers, "study": "table1-x", "alpha": "400"}
    both = claims_table([row(9.0, **followed), *rows])
    assert lines(both)[1]["ours"] == "1 of 1"


CELLS = Table(("a_b", "error %"), (("x & y", "1.0 +- 0.5"), ('"q", z', "-")))


def test_markdown_csv_and_latex_hold_the_same_cells():
    assert CELLS.markdown().splitlines() == [
        "| a_b | error % |",
        "| --- | --- |",
        "| x & y | 1.0 +- 0.5 |",
        '| "q", z | - |',
    ]
    assert list(csv.reader(io.StringIO(CELLS.csv()))) == [
        list(CELLS.header),
        *map(list, CELLS.lines),
    ]
    assert CELLS.latex().splitlines() == [
        r"\begin{tabular}{ll}",
        r"\toprule",
        r"a\_b & error \% \\",
        r"\midrule",
        r"x \& y & 1.0 $\pm$ 0.5 \\",
        r'"q", z & - \\',
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_a_bar_in_a_cell_does_not_end_it():
    (line,) = Table(("h", "k"), (("a|b", "c"),)).markdown().splitlines()[2:]
    assert line == r"| a\|b | c |"


@pytest.mark.parametrize("char", "%&_#^~{}$")
def test_what_latex_reads_as_a_command_is_escaped(char):
    line = Table(("h",), ((f"a{char}b",),)).latex().splitlines()[4]
    assert f"a{char}b" not in line
