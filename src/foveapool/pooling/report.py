"""What each alpha would reach, before anyone retrains a network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solve import Alpha, sweep_pooling

ALPHAS = (1.0, 5.0, 25.0, 100.0, 400.0, 1600.0)


@dataclass(frozen=True)
class ReportRow:
    """One alpha; figures are means over output places, one for each component.

    Attributes:
        alpha: The weight of locality.
        separability: S_b / S_w of the pooled values.
        gain: The same divided by the report's `average_separability`.
        radius: How far the weights lie from the center, in pixels.
        smallest_gap: The smallest relative gap to the next eigenvalue, over all places.
        largest_residual: The largest residual of all rows.
    """

    alpha: float
    separability: tuple[float, ...]
    gain: tuple[float, ...]
    radius: tuple[float, ...]
    smallest_gap: tuple[float, ...]
    largest_residual: float


@dataclass(frozen=True)
class PoolingReport:
    """A row for each alpha; `print` shows the table.

    Attributes:
        rows: One `ReportRow` for each alpha, in the order asked for.
        average_separability: S_b / S_w of average pooling, mean over output places.
        in_shape: The spatial size of the input.
        out_shape: The spatial size of the output.

    Example:
        >>> import torch
        >>> from foveapool import compute_scatter
        >>> scatter = compute_scatter(torch.randn(40, 3, 8, 8), torch.arange(40) % 4)
        >>> report = pooling_report(scatter, (4, 4), alphas=(5, 25))
        >>> [(row.alpha, len(row.separability)) for row in report.rows]
        [(5.0, 2), (25.0, 2)]
    """

    rows: tuple[ReportRow, ...]
    average_separability: float
    in_shape: tuple[int, ...]
    out_shape: tuple[int, ...]

    def __str__(self) -> str:
        lines = [
            f"pooling {self.in_shape} -> {self.out_shape}; average pooling separates "
            f"S_b/S_w = {self.average_separability:.4g}",
            f"{'alpha':>8}  {'S_b/S_w':>18}  {'times average':>15}  {'radius':>13}  {'gap':>15}",
        ]
        for row in self.rows:
            lines.append(
                f"{row.alpha:>8g}  {_joined(row.separability, '.4f'):>18}  "
                f"{_joined(row.gain, '.2f'):>15}  {_joined(row.radius, '.1f'):>13}  "
                f"{_joined(row.smallest_gap, '.1e'):>15}"
            )
        return "\n".join(lines)


def _joined(values: Sequence[float], form: str) -> str:
    return " ".join(format(value, form) for value in values)


def _row(operator: PoolingOperator) -> ReportRow:
    return ReportRow(
        alpha=operator.settings.alpha,
        separability=tuple(operator.separability.mean(1).tolist()),
        gain=tuple(operator.gain().mean(1).tolist()),
        radius=tuple(operator.radius().mean(1).tolist()),
        smallest_gap=tuple(operator.gaps.min(1).values.tolist()),
        largest_residual=float(operator.residuals.max()),
    )


def pooling_report(
    scatter: Scatter,
    out_shape: Sequence[int],
    alphas: Alpha | Sequence[Alpha] = ALPHAS,
    **settings: Any,
) -> PoolingReport:
    """Finds the separability that each alpha reaches, before anyone trains a network.

    The first component's separability on the training maps falls with alpha, always: read it
    beside the radius, as what locality costs, not as a forecast of the error.

    Args:
        scatter: A and B, such as `compute_scatter` gives.
        out_shape: The spatial size of the output.
        alphas: The alphas, or a single one.
        **settings: Those of `sweep_pooling`, such as `components` and `window`.

    Returns:
        A report that prints as a table.

    Raises:
        ValueError: If there is no alpha, or it is given as `alpha`; and as `sweep_pooling` does.

    Example:
        >>> import torch
        >>> from foveapool import compute_scatter
        >>> scatter = compute_scatter(torch.randn(40, 3, 8, 8), torch.arange(40) % 4)
        >>> report = pooling_report(scatter, (4, 4), alphas=(5, 25), components=1)
        >>> print(str(report).splitlines()[1])
           alpha             S_b/S_w    times average         radius              gap
    """
    if "alpha" in settings:
        raise ValueError(
            f"alpha: got {settings['alpha']!r}, wanted alphas=(...): a report has a row for each"
        )
    if isinstance(alphas, str) or not isinstance(alphas, Iterable):
        alphas = [alphas]
    operators = list(sweep_pooling(scatter, out_shape, alphas, **settings))
    if not operators:
        raise ValueError("alphas: got none, wanted at least one positive number")
    first = operators[0]
    return PoolingReport(
        rows=tuple(_row(operator) for operator in operators),
        average_separability=float(first.average_separability.mean()),
        in_shape=first.in_shape,
        out_shape=first.out_shape,
    )
