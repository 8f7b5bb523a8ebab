"""Whether a network says of images what it said before its layers were replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from foveapool.surgery.forward import call_network, dry_run, get_device
from foveapool.surgery.loader import Unpack, unpack_batch


@dataclass(frozen=True)
class Agreement:
    """On how many of the answers a network and what became of it agree.

    Attributes:
        alike: The answers that are the same: the class with the highest score.
        count: All answers; a network that labels places has many an image.

    Example:
        >>> print(Agreement(alike=31, count=32), Agreement(31, 32).share)
        the same answer as before to 96.9 % of 32 0.96875
    """

    alike: int
    count: int

    @property
    def share(self) -> float:
        """The share of the answers that are the same."""
        return self.alike / self.count

    def __str__(self) -> str:
        return f"the same answer as before to {100 * self.share:.1f} % of {self.count:,}"


def compare_networks(
    before: nn.Module, after: nn.Module, loader: Iterable[Any], unpack: Unpack | None = None
) -> Agreement:
    """How often the highest score of two networks is that of one class, in evaluation mode."""
    alike = count = 0
    for batch in loader:
        inputs = unpack_batch(batch, unpack).to(get_device(after)).inputs
        answers = []
        for model in (before, after):
            with dry_run(model):
                answers.append(_get_scores(call_network(model, inputs)).argmax(1))
        alike += int((answers[0] == answers[1]).sum())
        count += answers[0].numel()
    if not count:
        raise ValueError("check: got no batch, wanted at least one")
    return Agreement(alike, count)


def _get_scores(output: Any) -> Tensor:
    """The scores of the classes in what a network returns: itself, `logits`, or what is first."""
    scores = output
    if isinstance(scores, Mapping):
        scores = scores.get("logits", next(iter(scores.values()), None))
    elif not isinstance(scores, Tensor):
        scores = getattr(scores, "logits", scores)
    if isinstance(scores, (tuple, list)) and scores:
        scores = scores[0]
    if not isinstance(scores, Tensor) or scores.dim() < 2:
        raise ValueError(
            f"check: got a {type(output).__name__} from the network, wanted scores (batch, "
            "classes), or `logits` in what it returns; leave check out, and compare yourself"
        )
    return scores
