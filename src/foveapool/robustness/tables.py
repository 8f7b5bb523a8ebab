"""Tables in the shape of the paper's Tables 2 and 3; on its data, beside what the paper prints.

Plain text in cells: the command line prints them, documents take them as Markdown, others as CSV.
Shares are in percent; 100 is the baseline's own CE and flip rate, and lower is better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foveapool.robustness.names import NOISE_LEVELS, is_noise, name_at_level
from foveapool.robustness.result import (
    CORRUPTION_GROUPS,
    PERTURBATION_GROUPS,
    Paper,
    RobustnessResult,
    compare_with_baseline,
    corruption_ratios,
    count_better,
    get_paper_figures,
    load_paper,
    perturbation_ratios,
    sum_levels,
    summarize_alone,
)
from foveapool.tabular import Table

NONE = "-"
BASELINE, OURS = "baseline", "ours"
PAPER_BASELINE, PAPER_POOLING = "paper, ResNet", "paper, pooling"
RECONSTRUCTED = (
    "In brackets: for severity 4 of its baseline the paper prints the row of severity 3 once more; "
    "these follow from its CE, to half a point or so."
)
RESTS = (
    "The paper's mean error of the ResNet and its relative mCE rest on a row that was "
    "reconstructed from its CE."
)
LEVELS = (
    "Mean flip probabilities and mFR take the noises at level 1, as their authors do; the flip "
    "rates that are counted average the levels, as the paper does."
)
NEIGHBORS = (
    "Flips under noise are against the clean first frame, as their authors count. The paper's are "
    "too few for that, by its own errors under the same noise: most likely it compares "
    "neighboring frames, and only such flips can stand beside its own."
)


def make_tables(
    ours: RobustnessResult, baseline: RobustnessResult | None = None, data: str = ""
) -> list[Table]:
    """Says all that a result tells: a summary, then corruptions and perturbations by group.

    Args:
        ours: The result.
        baseline: The result to compare with. Without one there are errors and flips, but neither
            CE nor flip rates nor counts.
        data: The name of what was measured on. On "cifar10" the paper's figures stand beside.

    Returns:
        The tables, the summary first.

    Example:
        >>> from foveapool.robustness.metrics import CorruptionTable
        >>> result = RobustnessResult(CorruptionTable({"fog": {1: 0.25}}, clean=0.125))
        >>> [table.name for table in make_tables(result)]
        ['summary', 'corruptions-non-geometric']
    """
    printed = get_paper_figures(data)
    found = [summary_table(ours, baseline, printed)]
    for group, names in CORRUPTION_GROUPS.items():
        if there := [name for name in names if name in ours.corruptions.errors]:
            found.append(corruption_table(group, there, ours, baseline, printed))
    for group, names in PERTURBATION_GROUPS.items():
        if there := [name for name in names if sum_levels(ours, name)]:
            found.append(perturbation_table(group, there, ours, baseline, printed))
    return found


def summary_table(
    ours: RobustnessResult,
    baseline: RobustnessResult | None = None,
    printed: Paper | None = None,
) -> Table:
    """The means and counts in which papers sum a network up."""
    columns = {
        model: summarize_alone(result) for model, result in _list_models(ours, baseline, printed)
    }
    if baseline is not None:
        columns[OURS] |= compare_with_baseline(ours, baseline)
    if printed is not None:
        columns[PAPER_POOLING] |= compare_with_baseline(printed.pooling, printed.baseline)
    rows = [
        (label, *(column.get(label, NONE) for column in columns.values()))
        for label in columns[OURS]
    ]
    told = " ".join(columns[OURS])
    notes = [RESTS] if printed is not None and "15 corruptions" in told else []
    if "all 14" in told:
        notes.append(LEVELS)
        notes += [NEIGHBORS] if printed is not None else []
    header = ("percent, or how many", *columns)
    return Table(header, tuple(rows), "summary", "Summary", tuple(notes))


def corruption_table(
    group: str,
    names: Sequence[str],
    ours: RobustnessResult,
    baseline: RobustnessResult | None = None,
    printed: Paper | None = None,
) -> Table:
    """Errors by severity and CE of some corruptions, as in Table 2."""
    severities = sorted({s for name in names for s in ours.corruptions.errors[name]})
    worked_out = () if printed is None else printed.reconstructed
    rows, notes = [], []
    for model, result in _list_models(ours, baseline, printed):
        for severity in severities:
            cells = [_format_error(result, name, severity) for name in names]
            if all(cell == NONE for cell in cells):
                continue
            if model == PAPER_BASELINE and severity in worked_out:
                cells = [f"({cell})" for cell in cells]
                notes.append(RECONSTRUCTED)
            rows.append((model, str(severity), *cells))
    if baseline is not None:
        ratios = corruption_ratios(ours, baseline)
        theirs = {} if printed is None else printed.ce
        rows += _make_ratio_rows("CE", names, ratios, theirs)
        notes.insert(0, _count_claims("CE", f"{group} corruptions", names, ratios, theirs))
        if len(severities) < 5:
            listed = ", ".join(map(str, severities))
            notes.append(f"CE is over severity {listed} alone, not over all five.")
    titles = [load_paper().corruption_titles.get(name, name) for name in names]
    title = f"Corruptions, {group}: error % by severity"
    header = ("", "severity", *titles)
    return Table(header, tuple(rows), f"corruptions-{group}", title, tuple(notes))


def perturbation_table(
    group: str,
    names: Sequence[str],
    ours: RobustnessResult,
    baseline: RobustnessResult | None = None,
    printed: Paper | None = None,
) -> Table:
    """Flip probabilities, those of noises by level, and flip rates, as in Table 3."""
    rows, notes = [], []
    models = _list_models(ours, baseline, printed)
    for model, result in models:
        rows += _make_flip_rows(model, names, result.perturbations.flip_probability)
    if printed is not None:
        for model, result in models:
            rows += _make_flip_rows(
                f"{model}, neighbors", names, result.perturbations.neighbor_flips
            )
    if baseline is not None:
        ratios = perturbation_ratios(ours, baseline)
        theirs = {} if printed is None else printed.rate
        rows += _make_ratio_rows("flip rate", names, ratios, theirs)
        notes.append(_count_claims("flip rate", f"{group} perturbations", names, ratios, theirs))
        if printed is not None and baseline.perturbations.neighbor_flips:
            between = perturbation_ratios(ours, baseline, neighbors=True)
            rows += _make_ratio_rows("flip rate, neighbors", names, between, {})
        if any(
            is_noise(name) and len(sum_levels(ours, name)) < len(NOISE_LEVELS) for name in names
        ):
            notes.append("Flip rates are over the levels shown, not over all three.")
    if printed is not None and any(map(is_noise, names)):
        notes.append(NEIGHBORS)
    titles = [load_paper().perturbation_titles[name] for name in names]
    title = f"Perturbations, {group}: flip probability %"
    header = ("", "level", *titles)
    return Table(header, tuple(rows), f"perturbations-{group}", title, tuple(notes))


def _list_models(
    ours: RobustnessResult, baseline: RobustnessResult | None, printed: Paper | None
) -> list[tuple[str, RobustnessResult]]:
    """The models that a table has rows or columns of."""
    found = [(BASELINE, baseline)] if baseline is not None else []
    found.append((OURS, ours))
    if printed is not None:
        found += [(PAPER_BASELINE, printed.baseline), (PAPER_POOLING, printed.pooling)]
    return found


def _format_error(result: RobustnessResult, name: str, severity: int) -> str:
    error = result.corruptions.errors.get(name, {}).get(severity)
    return NONE if error is None else f"{100 * error:.1f}"


def _make_flip_rows(
    model: str, names: Sequence[str], flips: Mapping[str, float]
) -> list[tuple[str, ...]]:
    """A row a level, of what there is."""
    rows = []
    for level in NOISE_LEVELS:
        cells = [
            ""
            if level > 1 and not is_noise(name)
            else _format_percent(flips.get(name_at_level(name, level)))
            for name in names
        ]
        if any(cell not in ("", NONE) for cell in cells):
            rows.append((model, str(level), *cells))
    return rows


def _format_percent(share: float | None) -> str:
    return NONE if share is None else f"{100 * share:.2f}"


def _make_ratio_rows(
    what: str, names: Sequence[str], ours: Mapping[str, float], printed: Mapping[str, float]
) -> list[tuple[str, ...]]:
    """The last rows of the paper's tables: ours, and as it prints them."""
    rows = []
    for model, ratios in ((what, ours), (f"{what}, paper", printed)):
        if any(name in ratios for name in names):
            cells = [f"{100 * ratios[name]:.1f}" if name in ratios else NONE for name in names]
            rows.append((model, "", *cells))
    return rows


def _count_claims(
    what: str,
    kind: str,
    names: Sequence[str],
    ours: Mapping[str, float],
    printed: Mapping[str, float],
) -> str:
    """The paper's claim, counted the same way of ours."""
    start = f"{what[0].upper()}{what[1:]} below 100, better than the baseline"
    text = f"{start}: {count_better(names, ours)} {kind}"
    if any(name in printed for name in names):
        text += f"; in the paper {count_better(names, printed)}"
    return f"{text}."
