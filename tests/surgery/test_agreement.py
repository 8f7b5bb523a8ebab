"""`check` says how often a network answers as it did before its layers were replaced."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from foveapool import ClosedFormPooling, LinearPool2d, replace, restore
from foveapool.surgery.agreement import Agreement

from .toys import POOL, anatomy, loader, toy


class Wrapped(nn.Module):
    """A network whose answer is not a bare tensor."""

    def __init__(self, wrap: Any) -> None:
        super().__init__()
        self.inner, self.wrap = toy(), wrap

    def forward(self, x: torch.Tensor) -> Any:
        return self.wrap(self.inner(x))


def test_the_same_function_agrees_everywhere_and_another_one_as_often_as_counted():
    model = toy().train()
    before = anatomy(model)
    with torch.no_grad():
        wanted = torch.cat([model.eval()(x).argmax(1) for x, _ in loader()])
    model.train()
    same = LinearPool2d.from_kernel(torch.ones(1, 1), (4, 4), stride=2)
    done = replace(model, {POOL: same}, mode="after", check=loader())
    assert done.agreement == Agreement(len(wanted), len(wanted))
    assert str(done).splitlines()[-1] == f"the same answer as before to 100.0 % of {len(wanted)}"
    assert model.training
    restore(model)
    assert anatomy(model) == before
    done = replace(model, {POOL: LinearPool2d.random((4, 4), (2, 2))}, check=loader())
    with torch.no_grad():
        found = torch.cat([model.eval()(x).argmax(1) for x, _ in loader()])
    assert done.agreement.alike == int((found == wanted).sum()) < len(wanted)


def test_without_check_nothing_is_said_of_it():
    done = replace(toy(), {POOL: LinearPool2d.average((4, 4), (2, 2))})
    assert done.agreement is None and "answer" not in str(done)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: {"logits": x},
        lambda x: (x, None),
        lambda x: type("Output", (), {"logits": x})(),
        lambda x: {"scores": x},
    ],
    ids=["dict", "tuple", "attribute", "another name"],
)
def test_scores_are_found_in_what_networks_return(wrap):
    model = Wrapped(wrap)
    fit = ClosedFormPooling(alpha=1e9).fit(model, loader(), POOL, "after")
    assert fit.replace(model, check=loader()).agreement.share == 1.0


@pytest.mark.parametrize(
    ("model", "check", "message"),
    [
        (toy(), [], "check: got no batch, wanted at least one"),
        (Wrapped(lambda x: None), loader(), "check: got a NoneType from the network, wanted sc"),
    ],
    ids=["no batch", "no scores"],
)
def test_what_cannot_be_compared_is_refused_and_nothing_is_replaced(model, check, message):
    before = anatomy(model)
    with pytest.raises(ValueError, match=message):
        replace(model, {POOL: LinearPool2d.average((4, 4), (2, 2))}, check=check)
    assert anatomy(model) == before
