"""Tables beside the paper's: its own figures come out, its claims are counted, gaps are marked."""

import csv
from dataclasses import replace

import pytest

from foveapool.robustness.corruptions import CORRUPTIONS
from foveapool.robustness.metrics import CorruptionTable, FlipTable
from foveapool.robustness.names import (
    GEOMETRIC_CORRUPTIONS,
    GEOMETRIC_PERTURBATIONS,
    PERTURBATION_FILES,
    STANDARD_CORRUPTIONS,
)
from foveapool.robustness.perturbations import PERTURBATIONS
from foveapool.robustness.result import (
    RobustnessResult,
    average_results,
    corruption_ratios,
    load_paper,
    perturbation_ratios,
)
from foveapool.robustness.tables import NEIGHBORS, make_tables


def named(found, name):
    (table,) = [table for table in found if table.name == name]
    return table


def rows_of(table, model):
    return [row[1:] for row in table.lines if row[0] == model]


def result(scale, names=STANDARD_CORRUPTIONS, severities=(1, 2, 3, 4, 5), files=PERTURBATION_FILES):
    errors = {name: {s: scale * (0.1 + 0.05 * s) for s in severities} for name in names}
    flips = {name: scale * 0.02 for name in files}
    return RobustnessResult(CorruptionTable(errors, 0.05 * scale), FlipTable(flips, {}, {}))


def test_the_papers_last_rows_follow_from_its_rows():
    ratios = corruption_ratios(load_paper().pooling, load_paper().baseline)
    for name, printed in load_paper().ce.items():
        assert ratios[name] == pytest.approx(printed, abs=0.0015), name
    rates = perturbation_ratios(load_paper().pooling, load_paper().baseline)
    for name, printed in load_paper().rate.items():
        assert rates[name] == pytest.approx(printed, abs=0.001), name


def test_the_papers_last_rows_do_not_follow_without_the_reconstructed_row():
    """The row that the paper prints for severity 4 is that of severity 3."""
    errors = {
        name: {**found, 4: found[3]}
        for name, found in load_paper().baseline.corruptions.errors.items()
    }
    as_printed = RobustnessResult(CorruptionTable(errors))
    ratios = corruption_ratios(load_paper().pooling, as_printed)
    # Motion blur is the same at severities 3 and 4.
    far = [name for name in ratios if abs(ratios[name] - load_paper().ce[name]) > 0.015]
    assert len(far) == 14 and "motion_blur" not in far


@pytest.mark.parametrize("severity, level", [(1, 2), (2, 3)])
def test_the_papers_flips_under_noise_are_too_few_to_be_against_the_clean_frame(severity, level):
    """Each wrong answer beyond those to clean images is one that has changed."""
    file, errors = f"gaussian_noise_{level}", load_paper().baseline.corruptions
    (deviation,) = CORRUPTIONS["gaussian_noise"].severities[severity - 1]
    assert PERTURBATIONS[file].parameters == {"deviation": deviation}
    changed = errors.errors["gaussian_noise"][severity] - errors.clean
    assert load_paper().baseline.perturbations.flip_probability[file] < changed
    told = [
        each.name for each in make_tables(result(0.9), data="cifar10") if NEIGHBORS in each.notes
    ]
    assert told == ["summary", "perturbations-non-geometric"]
    assert all(NEIGHBORS not in each.notes for each in make_tables(result(0.9), data="svhn"))


def test_flips_between_neighbors_stand_beside_the_papers_where_they_were_counted():
    def with_neighbors(scale):
        flips = {name: scale * 0.01 for name in PERTURBATION_FILES if "noise" in name}
        found = result(scale)
        counted = replace(found.perturbations, neighbor_flips=flips)
        return replace(found, perturbations=counted)

    ours, baseline = with_neighbors(0.9), with_neighbors(1.0)
    table = named(make_tables(ours, baseline, "cifar10"), "perturbations-non-geometric")
    (column,) = [i for i, title in enumerate(table.header[1:]) if title == "Shot"]
    assert [row[column] for row in rows_of(table, "ours, neighbors")] == ["0.90"] * 3
    assert [row[column] for row in rows_of(table, "baseline, neighbors")] == ["1.00"] * 3
    (rates,) = rows_of(table, "flip rate, neighbors")
    assert rates[column] == "90.0" and "-" in rates
    for pair in ((ours, result(1.0)), (result(0.9), baseline), (result(0.9), result(1.0))):
        older = named(make_tables(*pair, "cifar10"), "perturbations-non-geometric")
        assert not rows_of(older, "flip rate, neighbors")
    assert average_results([ours, ours]).perturbations.neighbor_flips[
        "shot_noise"
    ] == pytest.approx(0.009)
    assert not average_results([ours, result(1.0)]).perturbations.neighbor_flips


def test_the_groups_are_the_papers():
    assert set(list(load_paper().ce)[:5]) == set(GEOMETRIC_CORRUPTIONS)
    assert set(list(load_paper().rate)[:8]) == set(GEOMETRIC_PERTURBATIONS)
    assert load_paper().baseline.perturbations.flip_probability.keys() == set(PERTURBATION_FILES)


def test_the_papers_claims_are_counted_as_it_counts_them():
    summary = named(make_tables(load_paper().pooling, load_paper().baseline, "cifar10"), "summary")
    ours = {row[0]: row[summary.header.index("ours")] for row in summary.lines}
    assert ours["CE below 100, geometric"] == "4 of 5"
    assert ours["flip rate below 100, geometric"] == "6 of 8"
    assert ours["flip rate below 100, non-geometric"] == "4 of 6"  # 10 of 14 in all
    assert ours["mCE"] == "99.8"
    column = summary.header.index("paper, pooling")
    assert all(row[column] == ours[row[0]] for row in summary.lines)


def test_a_table_has_the_papers_shape_and_marks_its_missing_row():
    found = make_tables(result(0.9), result(1.0), "cifar10")
    table = named(found, "corruptions-geometric")
    assert table.header == ("", "severity", "Defocus", "Glass", "Motion", "Zoom", "Elastic")
    assert rows_of(table, "baseline")[0] == ("1", *["15.0"] * 5)
    assert rows_of(table, "ours")[4] == ("5", *["31.5"] * 5)
    printed = rows_of(table, "paper, ResNet")
    assert printed[3] == ("4", "(19.8)", "(49.7)", "(23.4)", "(26.2)", "(19.8)")
    assert not any("(" in cell for row in (*printed[:3], printed[4]) for cell in row)
    assert rows_of(table, "CE") == [("", *["90.0"] * 5)]
    assert rows_of(table, "CE, paper") == [("", "97.0", "105.1", "99.0", "93.0", "98.0")]
    assert "5 of 5 geometric corruptions; in the paper 4 of 5" in table.notes[0]
    assert "prints the row of severity 3 once more" in table.notes[1]
    noisy = named(found, "perturbations-non-geometric")
    assert rows_of(noisy, "ours")[1] == ("2", "", "", "", "1.80", "1.80", "1.80")
    assert rows_of(noisy, "flip rate") == [("", *["90.0"] * 6)]
    assert len(named(found, "corruptions-non-geometric").header) == 2 + 10


@pytest.mark.parametrize("data", ["", "street-digits", "cifar100", "cifar10, 5 %"])
def test_on_other_data_nothing_of_the_paper_is_shown(data):
    for table in make_tables(result(0.9), result(1.0), data):
        shown = [*table.header, *(row[0] for row in table.lines)]
        assert not any("paper" in cell for cell in shown)
        assert not any("in the paper" in note or "The paper's" in note for note in table.notes)
    summary = make_tables(result(0.9), None, data)[0]
    assert summary.header == ("percent, or how many", "ours")


def test_markdown_and_csv_hold_the_same_cells():
    for table in make_tables(result(0.9), result(1.0), "cifar10"):
        lines = table.markdown().split("\n\n")[0].splitlines()
        cells = [tuple(cell.strip() for cell in line[1:-1].split("|")) for line in lines]
        assert cells[0] == table.header and tuple(cells[2:]) == table.lines
        assert all(note in table.markdown() for note in table.notes)
        assert [tuple(row) for row in csv.reader(table.csv().splitlines())] == [
            table.header,
            *table.lines,
        ]


def test_what_was_not_measured_is_not_shown():
    few = result(1.0, names=["fog", "saturate"], severities=[5], files=["tilt"])
    found = make_tables(few, data="cifar10")
    assert [table.name for table in found] == [
        "summary",
        "corruptions-non-geometric",
        "corruptions-extra",
        "perturbations-geometric",
    ]
    table = found[1]
    assert table.header[2:] == ("Fog",)
    assert [row[0] for row in table.lines] == ["ours", "paper, ResNet", "paper, pooling"]
    assert [row[0] for row in found[2].lines] == ["ours"]  # the paper has no extra ones
    assert "CE" not in {row[0] for row in table.lines} and table.notes == ()
    assert found[0].notes == ()
    (note,) = make_tables(few, few)[1].notes[1:]
    assert "CE is over severity 5 alone" in note
    one_level = result(1.0, names=[], files=["shot_noise"])
    assert "over the levels shown" in make_tables(one_level, one_level)[1].notes[1]


def test_a_baseline_without_an_error_leaves_a_dash_not_a_crash():
    found = make_tables(result(0.5), result(0.0))
    table = named(found, "corruptions-geometric")
    assert rows_of(table, "CE") == [] and "0 of 0 geometric" in table.notes[0]
    summary = {row[0]: row[2] for row in named(found, "summary").lines}
    assert summary["mCE"] == summary["mFR, all 14"] == "-"


def test_a_baseline_of_other_measurements_is_refused():
    with pytest.raises(ValueError, match=r"fog: errors at severities \[5\]"):
        make_tables(result(1.0, ["fog"], [5]), result(1.0, ["fog"]))
    with pytest.raises(ValueError, match=r"shot_noise: got flips of shot_noise, of the baseline"):
        make_tables(result(1.0, ["fog"], files=["shot_noise"]), result(1.0, ["fog"]))
