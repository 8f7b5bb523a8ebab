"""From scatter to operator: the eigenvectors of all output places, scaled and signed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from foveapool.pooling.blocks import one_thread
from foveapool.pooling.grid import CENTRES, Centre, is_number
from foveapool.pooling.operator import PoolingOperator, SolveSettings
from foveapool.pooling.problem import Problem
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.signs import SIGNS, Sign, apply_signs
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
    centre: Centre = "paper",
    sign: Sign = "neighbour",
    solver: str = "auto",
    window: int | None = None,
    alpha_unit: AlphaUnit = "absolute",
    tolerance: float = 1e-8,
    memory: int | None = None,
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
        centre: Where the row of an output place is centered: "paper" (`s * coord(m)`), "aligned"
            (the middle of its block) or "first" (the first pixel of its block).
        sign: "neighbour" makes rows agree with those beside them, "sum" makes no row sum to less
            than zero.
        solver: "dense" (LAPACK), "krylov" or "arpack" (needs scipy); "auto" is "dense" for maps of
            at most 96 places and "krylov" for larger ones.
        window: r lets each place see only the (2r + 1)-wide neighborhood of its center; None the
            whole map.
        alpha_unit: "absolute", or "trace": in units of trace(B)/N, which does not depend on the
            numbers of classes and channels.
        tolerance: The relative residual at which "krylov" stops; the others are more exact.
        memory: At most so many bytes are taken beside A and B, down to what a single place needs.

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
        centre=centre,
        sign=sign,
        solver=solver,
        window=window,
        alpha_unit=alpha_unit,
        tolerance=tolerance,
        memory=memory,
    )
    return operator


def sweep_pooling(
    scatter: Scatter,
    out_shape: Sequence[int],
    alphas: Iterable[Alpha],
    *,
    components: int = 2,
    norm: Norm = "l2",
    centre: Centre = "paper",
    sign: Sign = "neighbour",
    solver: str = "auto",
    window: int | None = None,
    alpha_unit: AlphaUnit = "absolute",
    tolerance: float = 1e-8,
    memory: int | None = None,
) -> Iterator[PoolingOperator]:
    """Solves for one alpha after the other, each starting from the answer before it.

    Args:
        scatter: As for `solve_pooling`, and so all but `alphas`.
        out_shape: The spatial size of the output.
        alphas: The alphas, in the order in which to solve for them; neighbors help each other.
        components: As for `solve_pooling`.
        norm: As for `solve_pooling`.
        centre: As for `solve_pooling`.
        sign: As for `solve_pooling`.
        solver: As for `solve_pooling`.
        window: As for `solve_pooling`.
        alpha_unit: As for `solve_pooling`.
        tolerance: As for `solve_pooling`.
        memory: As for `solve_pooling`.

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
    check_choices(norm, centre, sign, solver, alpha_unit, alphas)
    problem = Problem.of(scatter, out_shape, components, centre, window)
    solver = problem.choose(solver)
    vectors: Tensor | None = None
    for alpha in alphas:
        if alpha == "auto":
            alpha = AUTO_ALPHA * (1.0 if alpha_unit == "trace" else problem.unit)
        strength = alpha if alpha_unit == "trace" else alpha / problem.unit
        ridge = problem.ridge(strength)
        answer = problem.solve(strength, ridge, solver, tolerance, memory, vectors)
        vectors = answer.vectors
        length = vectors.norm(p=1 if norm == "l1" else 2, dim=-1, keepdim=True)
        weight = problem.written_out(vectors / length)
        values = answer.values.mT
        _warn_of_noise(values[:-1])
        with one_thread(vectors.shape[-1]):
            weight = apply_signs(weight, problem.in_shape, problem.out_shape, centre, sign)
        yield PoolingOperator(
            weight=weight,
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
                centre=centre,
                sign=sign,
                solver=solver,
                window=window,
                tolerance=tolerance,
                weighting=scatter.weighting,
                ridge=ridge * problem.unit,
            ),
        )


def _warn_of_noise(values: Tensor) -> None:
    """Says so where A has fewer directions than components were asked for; `values` (k, M)."""
    places = int((values[-1] <= NOISE * values[0]).sum())
    if places:
        warnings.warn(
            f"components: got {len(values)}, and at {places} of {values.shape[1]} output places "
            "fewer separate the classes: the last ones are noise there; ask for fewer",
            stacklevel=3,
        )


def check_choices(
    norm: str, centre: str, sign: str, solver: str, alpha_unit: str, alphas: Sequence[Alpha]
) -> None:
    """Raises a ValueError unless these can be solved with; before data is read, say."""
    for name, got, wanted in (
        ("norm", norm, ("l1", "l2")),
        ("centre", centre, CENTRES),
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
