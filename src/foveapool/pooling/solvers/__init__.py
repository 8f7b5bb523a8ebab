"""Solvers of the eigenproblems, one file each, all passing one test suite.

A solver is a function `(pencil, components, tolerance, start) -> Eigenpairs`.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from foveapool.pooling.solvers.krylov import solve_krylov
from foveapool.pooling.solvers.pencil import Eigenpairs, Matrices, Pencil, solve_arpack, solve_dense

Solver = Callable[[Pencil, int, float, Tensor | None], Eigenpairs]

SOLVERS: dict[str, Solver] = {
    "krylov": solve_krylov,
    "dense": solve_dense,
    "arpack": solve_arpack,
}

__all__ = ["SOLVERS", "Eigenpairs", "Matrices", "Pencil", "Solver"]
