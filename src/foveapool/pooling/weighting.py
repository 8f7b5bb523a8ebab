"""What the second pass does with maps beside multiplying them: centring, weighting, class sums.

Where maps are small their product takes little longer than reading them, so each of these reads
them once.
"""

from __future__ import annotations

import torch
from torch import Tensor


def weighted_difference(maps: Tensor, level: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """`(maps - level) * weight` into `out`, to the last bit, without a pass for each operation.

    torch has no such function but the gradient of a squared error, `2 (x - y) g`.
    """
    kernel = torch.ops.aten.mse_loss_backward.grad_input
    found: Tensor = kernel(weight / 2, maps, level, reduction=0, grad_input=out)
    return found


def class_sums(rows: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Sums of `rows` (B, ...) by label, (classes, ...), added up in the same order every time.

    >>> class_sums(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([1, 0, 1]), 2).tolist()
    [[2.0], [5.0]]
    """
    if not rows.is_cuda:
        return rows.new_zeros(classes, *rows.shape[1:]).index_add_(0, labels, rows)
    # There `index_add_` takes any order; a product with the indicator of the classes does not.
    member = torch.arange(classes, device=labels.device)[:, None] == labels
    sums = member.to(rows.dtype) @ rows.flatten(1)
    return sums.unflatten(1, rows.shape[1:])
