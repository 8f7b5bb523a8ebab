"""Solvers of the eigenproblems, one file each, all passing one test suite.

A solver is a function `(pencil, components, tolerance, start) -> Eigenpairs`.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from foveapool.pooling.solvers import arpack, dense, krylov
from foveapool.pooling.solvers.pencil import Eigenpairs, Matrices, Pencil

Solver = Callable[[Pencil, int, float, Tensor | None], Eigenpairs]

SOLVERS: dict[str, Solver] = {
    "krylov": krylov.solve,
    "dense": dense.solve,
    "arpack": arpack.solve,
}

__all__ = ["SOLVERS", "Eigenpairs", "Matrices", "Pencil", "Solver"]
