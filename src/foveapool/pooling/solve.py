"""From scatter to operator: the eigenvectors of all output places, scaled and signed.

An eigenvector has no sign of its own. Neighboring output places should agree, or the convolution
behind the pooling meets a chessboard of flipped signs; sums alone cannot settle it, since those of
second eigenvectors are near zero.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from foveapool.pooling.eigenproblem import (
    CONSTANT,
    RIDGE,
    Eigenproblem,
    Progress,
    limit_threads,
)
from foveapool.pooling.grid import CENTERS, Center, centers, coordinates, is_number, window_axes
from foveapool.pooling.operator import PoolingOperator, SolveSettings
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solvers import SOLVERS

Norm = Literal["l1", "l2"]
AlphaUnit = Literal["absolute", "trace"]
Alpha = float | Literal["auto"]

# In units of trace(B)/N. Error against alpha is flat around it, on the data and at the layers where
# it was tried (docs/alpha.md).
AUTO_ALPHA = 0.5
# An eigenvalue this far below the first is what rounding left.
NOISE = 1e-13


def solve_pooling(
    scatter: Scatter,
    out_shape: Sequence[int],
    *,
    alpha: Alpha = "auto",
    components: int = 2,
    norm: Norm = "l2",
    center: Center = "paper",
    sign: Sign = "neighbor",
    solver: str = "auto",
    window: int | None = None,
    alpha_unit: AlphaUnit = "absolute",
    tolerance: float = 1e-8,
    memory: int | None = None,
    progress: Progress | None = None,
) -> PoolingOperator:
    """Finds the top components of A p = mu (B + alpha C_m) p for every output place m.

    C_m is diagonal, the squared distance of each input place from the center of m. Shapes: the
    operator's weight is (k, M, N), with M output places and N input places in raster order.

    Args:
        scatter: A and B, such as `compute_scatter` gives.
        out_shape: The spatial size of the output, such as (16, 16).
        alpha: The weight of locality; "auto" is half of trace(B)/N.
        components: k, the maps that each channel is pooled to.
        norm: The norm in which each row has length one, "l1" or "l2".
        center: Where the row of an output place is centered: "paper" (`s * coord(m)`), "aligned"
            (the middle of its block) or "first" (the first pixel of its block).
        sign: "neighbor" makes rows agree with those beside them, "sum" makes no row sum to less
            than zero.
        solver: "dense" (LAPACK), "krylov" or "arpack" (needs scipy); "auto" is "dense" for maps of
            at most 96 places and "krylov" for larger ones.
        window: r lets each place see only the (2r + 1)-wide neighborhood of its center; None the
            whole map.
        alpha_unit: "absolute", or "trace": in units of trace(B)/N, which does not depend on the
            numbers of classes and channels.
        tolerance: The relative residual at which "krylov" stops; the others are more exact.
        memory: At most so many bytes are taken beside A and B, down to what a single place needs.
        progress: A function of how many places are solved, and how many there are.

    Returns:
        The operator, with eigenvalues, residuals and separability of each row.

    Raises:
        ValueError: If a setting is none of these, the scatter cannot be solved with them, or it has
            too few samples for so small an alpha.

    Example:
        >>> from foveapool import compute_scatter
        >>> maps, labels = torch.randn(40, 3, 8, 8), torch.arange(40) % 4
        >>> operator = solve_pooling(compute_scatter(maps, labels), (4, 4), components=2)
        >>> operator.weight.shape
        torch.Size([2, 16, 64])
    """
    (operator,) = sweep_pooling(
        scatter,
        out_shape,
        [alpha],
        components=components,
        norm=norm,
        center=center,
        sign=sign,
        solver=solver,
        window=window,
        alpha_unit=alpha_unit,
        tolerance=tolerance,
        memory=memory,
        progress=progress,
    )
    return operator


def sweep_pooling(
    scatter: Scatter,
    out_shape: Sequence[int],
    alphas: Iterable[Alpha],
    *,
    components: int = 2,
    norm: Norm = "l2",
    center: Center = "paper",
    sign: Sign = "neighbor",
    solver: str = "auto",
    window: int | None = None,
    alpha_unit: AlphaUnit = "absolute",
    tolerance: float = 1e-8,
    memory: int | None = None,
    progress: Progress | None = None,
) -> Iterator[PoolingOperator]:
    """Solves for one alpha after the other, each starting from the answer before it.

    Args:
        scatter: As for `solve_pooling`, and so all but `alphas`.
        out_shape: The spatial size of the output.
        alphas: The alphas, in the order in which to solve for them; neighbors help each other.
        components: As for `solve_pooling`.
        norm: As for `solve_pooling`.
        center: As for `solve_pooling`.
        sign: As for `solve_pooling`.
        solver: As for `solve_pooling`.
        window: As for `solve_pooling`.
        alpha_unit: As for `solve_pooling`.
        tolerance: As for `solve_pooling`.
        memory: As for `solve_pooling`.
        progress: As for `solve_pooling`; it is told of each alpha anew.

    Yields:
        The operator of each alpha, as soon as it is there.

    Raises:
        ValueError: As `solve_pooling` does; when the first operator is asked for.

    Example:
        >>> from foveapool import compute_scatter
        >>> scatter = compute_scatter(torch.randn(40, 3, 8, 8), torch.arange(40) % 4)
        >>> for operator in sweep_pooling(scatter, (4, 4), alphas=(5, 25)):
        ...     print(operator)
        PoolingOperator((8, 8) -> (4, 4), components=2, alpha=5, l2)
        PoolingOperator((8, 8) -> (4, 4), components=2, alpha=25, l2)
    """
    alphas = list(alphas)
    check_choices(norm, center, sign, solver, alpha_unit, alphas)
    problem = Eigenproblem.of(scatter, out_shape, components, center, window)
    solver = problem.choose(solver)
    vectors: Tensor | None = None
    for alpha in alphas:
        if alpha == "auto":
            alpha = AUTO_ALPHA * (1.0 if alpha_unit == "trace" else problem.unit)
        strength = alpha if alpha_unit == "trace" else alpha / problem.unit
        ridge = problem.ridge(strength)
        if ridge:
            _warn_of_ridge(strength, problem.count_lifted(strength))
        answer = problem.solve(strength, ridge, solver, tolerance, memory, vectors, progress)
        vectors = answer.vectors
        length = vectors.norm(p=1 if norm == "l1" else 2, dim=-1, keepdim=True)
        rows = (vectors / length).transpose(0, 1).contiguous()
        values = answer.values.mT
        _warn_of_noise(values[:-1])
        with limit_threads(vectors.shape[-1]):
            shapes = (problem.in_shape, problem.out_shape)
            rows = apply_signs(rows, *shapes, center, sign, window)
        yield PoolingOperator(
            rows=rows,
            eigenvalues=values[:-1].contiguous(),
            residuals=answer.residuals.mT.contiguous(),
            gaps=(values[:-1] - values[1:]) / values[:1].clamp(min=torch.finfo(values.dtype).tiny),
            separability=answer.separability.mT.contiguous(),
            average_separability=problem.average_separability,
            mean=scatter.mean,
            in_shape=problem.in_shape,
            out_shape=problem.out_shape,
            settings=SolveSettings(
                alpha=float(alpha),
                alpha_unit=alpha_unit,
                norm=norm,
                center=center,
                sign=sign,
                solver=solver,
                window=window,
                tolerance=tolerance,
                weighting=scatter.weighting,
                ridge=ridge * problem.unit,
            ),
        )


def _warn_of_ridge(strength: float, lifted: int) -> None:
    """Says so where the answer depends on what is added to the diagonal of B."""
    if strength < CONSTANT:
        warnings.warn(
            f"alpha: got {strength:.1g} of trace(B)/N, less than the {RIDGE:g} of it that rounding "
            f"asks for; what is found is the answer for that; ask for {RIDGE:g} or more",
            stacklevel=3,
        )
    elif lifted:
        warnings.warn(
            f"within: {lifted} places vary by less than {math.sqrt(CONSTANT):.0e} of what others do"
            " and count as constant; their weights depend on what is added to the diagonal of B "
            "(settings.ridge)",
            stacklevel=3,
        )


def _warn_of_noise(values: Tensor) -> None:
    """Says so where A has fewer directions than components were asked for; `values` (k, M)."""
    places = int((values[0] <= NOISE).sum())
    if places:
        warnings.warn(
            f"between: at {places} of {values.shape[1]} output places the means of the classes are "
            "the same up to rounding: what is found there is noise",
            stacklevel=3,
        )
        return
    places = int((values[-1] <= NOISE * values[0]).sum())
    if places:
        warnings.warn(
            f"components: got {len(values)}, and at {places} of {values.shape[1]} output places "
            "fewer separate the classes: the last ones are noise there; ask for fewer",
            stacklevel=3,
        )


def check_choices(
    norm: str, center: str, sign: str, solver: str, alpha_unit: str, alphas: Sequence[Alpha]
) -> None:
    """Raises a ValueError unless these can be solved with; before data is read, say."""
    for name, got, wanted in (
        ("norm", norm, ("l1", "l2")),
        ("center", center, CENTERS),
        ("sign", sign, SIGNS),
        ("solver", solver, ("auto", *SOLVERS)),
        ("alpha_unit", alpha_unit, ("absolute", "trace")),
    ):
        if got not in wanted:
            raise ValueError(f"{name}: got {got!r}, wanted one of {tuple(wanted)}")
    for alpha in alphas:
        if alpha == "auto":
            continue
        if not (is_number(alpha) and alpha > 0 and math.isfinite(alpha)):
            raise ValueError(
                f"alpha: got {alpha!r}, wanted a positive number or 'auto'; without a penalty the "
                "rows of all output places would be the same"
            )


Sign = Literal["neighbor", "sum"]
SIGNS: tuple[Sign, ...] = ("neighbor", "sum")
# The cosine below which two rows have nothing in common.
NOTHING = 1e-6


def apply_signs(
    weight: Tensor,
    in_shape: Sequence[int],
    out_shape: Sequence[int],
    center: Center = "paper",
    sign: Sign = "neighbor",
    window: int | None = None,
) -> Tensor:
    """`weight` (k, M, N), or its windows (k, M, n), with each row's sign settled.

    `sum`: no row sums to less than zero. `neighbor`: so at the middle of the map, and from there
    outwards each row points the way of its neighbor, moved to the same center; a row that has
    nothing in common with its neighbor sums to no less than zero.
    """
    if sign not in SIGNS:
        raise ValueError(f"sign: got {sign!r}, wanted one of {SIGNS}")
    sums = weight.sum(-1)
    if sign == "sum":
        return weight * _sign(sums)[..., None]
    parents, order = _towards_middle(out_shape)
    agreement = _agreement(weight, parents, in_shape, out_shape, center, window)
    length = weight.norm(dim=-1)
    # Rounding errors must not settle a sign. The middle has no neighbor to follow.
    alone = agreement.abs() <= NOTHING * length * length[:, parents]
    alone[:, order[0]] = True
    alone, signs = alone.cpu(), _sign(torch.where(alone, sums, agreement)).cpu()
    for place in order[1:]:
        followed = signs[:, parents[place]]
        signs[:, place] *= torch.where(alone[:, place], 1.0, followed)
    return weight * signs.to(weight)[..., None]


def _sign(values: Tensor) -> Tensor:
    return torch.where(values < 0, -1.0, 1.0).to(values)


def _towards_middle(out_shape: Sequence[int]) -> tuple[list[int], list[int]]:
    """Each place's neighbor on the way to the middle, and all places in an order from there."""
    places = (coordinates(out_shape) - 1).long()
    middle = torch.tensor([size // 2 for size in out_shape])
    away = places - middle
    axis = away.abs().argmax(1, keepdim=True)
    step = torch.zeros_like(away).scatter_(1, axis, away.gather(1, axis).sign())
    strides = torch.tensor([torch.Size(out_shape[i + 1 :]).numel() for i in range(len(out_shape))])
    parents = ((places - step) * strides).sum(1)
    order = away.abs().sum(1).argsort(stable=True)
    return parents.tolist(), order.tolist()


def _agreement(
    weight: Tensor,
    parents: list[int],
    in_shape: Sequence[int],
    out_shape: Sequence[int],
    center: Center,
    window: int | None,
) -> Tensor:
    """The inner product of each row with its parent's, moved to the same center, (k, M)."""
    middles = centers(in_shape, out_shape, center)
    parent = torch.tensor(parents)
    # Half a pixel goes up, on every machine.
    moves = (middles - middles[parent] + 0.5).floor().long()
    result = torch.zeros(weight.shape[:2], dtype=weight.dtype, device=weight.device)
    sizes = tuple(in_shape)
    if window is not None:
        axes = window_axes(in_shape, out_shape, window, center)
        sizes = tuple(along.shape[1] for along in axes)
        # At the border a window does not move as far as its center does.
        first = torch.cartesian_prod(*(along[:, 0] for along in axes)).reshape(-1, len(axes))
        moves = moves - (first - first[parent])
    picture = weight.unflatten(-1, sizes)
    for move in moves.unique(dim=0).tolist():
        chosen = (moves == torch.tensor(move)).all(1).nonzero().flatten().to(weight.device)
        rows, neighbors = picture[:, chosen], picture[:, parent.to(weight.device)[chosen]]
        for axis, distance in enumerate(move):
            size = max(sizes[axis] - abs(distance), 0)
            rows = rows.narrow(2 + axis, max(distance, 0) if size else 0, size)
            neighbors = neighbors.narrow(2 + axis, max(-distance, 0) if size else 0, size)
        result[:, chosen] = (rows * neighbors).flatten(2).sum(-1)
    return result


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
