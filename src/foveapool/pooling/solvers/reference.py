"""The solvers to compare with: LAPACK on the whole matrix, and the paper's route, ARPACK.

LAPACK is also the fastest for small maps. ARPACK takes one output place after the other, on the
CPU, and needs scipy, which is an extra.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from foveapool._suggest import how_to_install
from foveapool.pooling.solvers.pencil import Eigenpairs, Pencil


def solve_dense(
    pencil: Pencil, components: int, tolerance: float = 1e-9, start: Tensor | None = None
) -> Eigenpairs:
    """All eigenpairs through the Cholesky factor of the metric; keeps the largest.

    `tolerance` and `start` are for iterative solvers; this one is as exact as float64 allows.
    """
    factor = torch.linalg.cholesky(pencil.metric())
    between = pencil.matrices.between.expand_as(factor)
    half = torch.linalg.solve_triangular(factor, between, upper=False)
    reduced = torch.linalg.solve_triangular(factor, half.mT, upper=False)
    values, vectors = torch.linalg.eigh((reduced + reduced.mT) / 2)
    top = vectors[:, :, -components:].flip(-1)
    rows = torch.linalg.solve_triangular(factor.mT, top, upper=True).mT
    values = values[:, -components - 1 :].flip(-1)
    if values.shape[1] == components:
        values = torch.nn.functional.pad(values, (0, 1))
    return Eigenpairs(values, rows)


def solve_arpack(
    pencil: Pencil, components: int, tolerance: float = 1e-9, start: Tensor | None = None
) -> Eigenpairs:
    """ARPACK's implicitly restarted Arnoldi iteration, to machine precision.

    `tolerance` is not handed on: ARPACK measures in another norm, and its default is the safe one.
    """
    try:
        from scipy.linalg import eigh
        from scipy.sparse.linalg import eigs
    except ImportError as error:
        raise ValueError(
            f"solver: got 'arpack', which needs scipy; {how_to_install('arpack')}, or take "
            "'krylov' or 'dense'"
        ) from error
    wanted = components + 1
    if wanted > pencil.size - 2:
        raise ValueError(
            f"solver: got 'arpack' for {components} components of {pencil.size} places, wanted "
            f"{components + 3} places or more; take solver='dense'"
        )
    values = np.empty((pencil.batch, wanted))
    vectors = np.empty((pencil.batch, components, pencil.size))
    matrices = pencil.matrices
    metric = pencil.metric().cpu().numpy()
    for place in range(pencil.batch):
        between = (matrices.between if matrices.shared else matrices.between[place]).cpu().numpy()
        # A fixed start makes the answer the same every time.
        begin = np.random.default_rng(0).standard_normal(pencil.size)
        found, columns = eigs(between, k=wanted, M=metric[place], which="LR", v0=begin)
        order = np.argsort(-found.real)
        rows = columns.real.T[order]
        if _has_parallel_rows(rows, metric[place]):
            # Of equal eigenvalues the iteration can give one vector twice.
            last = pencil.size - 1
            top = {"subset_by_index": (last - components, last)}
            found, columns = eigh(between, metric[place], **top)
            order, rows = np.argsort(-found), columns.T[::-1]
        values[place] = found.real[order]
        vectors[place] = rows[:components]
    return Eigenpairs(
        torch.from_numpy(values).to(pencil.diagonal), torch.from_numpy(vectors).to(pencil.diagonal)
    )


def _has_parallel_rows(rows: np.ndarray, metric: np.ndarray) -> bool:
    """Whether two of the rows are not orthogonal in the metric, as eigenvectors would be."""
    products = rows @ metric @ rows.T
    lengths = np.sqrt(products.diagonal())
    return bool(np.abs(np.triu(products, 1) / np.outer(lengths, lengths)).max() > 1e-6)
