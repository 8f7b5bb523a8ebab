"""The paper's route: scipy.sparse.linalg.eigs, one output place after the other, on the CPU.

Here as an oracle and to be compared with; it needs scipy, which is an extra.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from foveapool.pooling.solvers.pencil import Eigenpairs, Pencil


def solve(
    pencil: Pencil, components: int, tolerance: float = 1e-9, start: Tensor | None = None
) -> Eigenpairs:
    """ARPACK's implicitly restarted Arnoldi iteration, to machine precision.

    `tolerance` is not handed on: ARPACK measures in another norm, and its default is the safe one.
    """
    try:
        from scipy.sparse.linalg import eigs
    except ImportError as error:
        raise ValueError(
            "solver: got 'arpack', which needs scipy; pip install foveapool[arpack], or take "
            "'krylov' or 'dense'"
        ) from error
    wanted = components + 1
    if wanted > pencil.size - 2:
        raise ValueError(
            f"components: got {components}, wanted at most {pencil.size - 3} for 'arpack' on "
            f"{pencil.size} places; take solver='dense'"
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
        values[place] = found.real[order]
        vectors[place] = columns.real.T[order[:components]]
    return Eigenpairs(
        torch.from_numpy(values).to(pencil.diagonal), torch.from_numpy(vectors).to(pencil.diagonal)
    )
