"""Where the rows of a fitted pooling are centered: the paper's place, or the layer's own output."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from foveapool import ClosedFormPooling


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.Conv2d(6, 4, 2, stride=3),
        nn.Flatten(),
        nn.Linear(36, 4),
    ).eval()


IMAGES, LABELS = torch.randn(80, 3, 30, 30), torch.arange(80) % 4


@pytest.mark.parametrize("layer", ["0", "2", "3"])
def test_behind_a_layer_a_large_alpha_leaves_the_network_as_it_was(layer):
    model = network()
    wanted = model(IMAGES).detach()
    fit = ClosedFormPooling(alpha=1e9, norm="l1").fit(model, [(IMAGES, LABELS)], layer, "after")
    assert fit.operator_.settings.center == "first"
    fit.replace(model)
    torch.testing.assert_close(model(IMAGES), wanted, rtol=1e-4, atol=1e-4)


def test_elsewhere_the_center_is_the_papers_unless_it_is_chosen():
    model, loader = network(), [(IMAGES, LABELS)]
    assert ClosedFormPooling().fit(model, loader, "3").operator_.settings.center == "paper"
    chosen = ClosedFormPooling(center="aligned").fit(model, loader, "2", "after")
    assert chosen.operator_.settings.center == "aligned"
    with pytest.raises(ValueError, match=r"center: got 'last', wanted one of .*first"):
        ClosedFormPooling(center="last").fit(model, loader, "0")
