"""What is said to those who name a layer or give an example in a way that cannot work."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from foveapool import ClosedFormPooling, LinearPool2d, downsampling_layers, replace

from .toys import loader, pictures, toy

POOL = LinearPool2d.average((8, 8), (4, 4))


@pytest.mark.filterwarnings("ignore")
def test_a_quantized_layer_is_called_so():
    model = nn.Sequential(nn.ReLU(), torch.ao.nn.quantized.Conv2d(3, 4, 3, 2, 1))
    with pytest.raises(ValueError, match=r"got '1', a quantized Conv2d, .*quantize it afterwards"):
        replace(model, {"1": POOL})


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ("", "layer: got '', wanted the name of a layer"),
        (5, "layer: got a int, wanted the name of a layer.*; write '5'"),
        (["0", 5], "; write '5'"),
        ("pooling", "a pooling written as a function, such as F.avg_pool2d, has no name"),
    ],
    ids=str,
)
def test_what_is_no_name_is_answered_with_what_would_be(layer, message):
    with pytest.raises(ValueError, match=message):
        ClosedFormPooling().fit(toy(), loader(), layer)


@pytest.mark.parametrize("key", ["", 5], ids=repr)
def test_replace_answers_what_is_no_name_likewise(key):
    wanted = "'', wanted the name" if key == "" else "5, wanted the name .*; write '5'"
    with pytest.raises(ValueError, match=f"layer: got {wanted}"):
        replace(toy(), {key: POOL})


def test_where_no_layer_shrinks_none_is_offered():
    model = nn.Sequential(nn.MaxPool2d(2, return_indices=True))
    with pytest.raises(ValueError, match=r"as no learned pooling can, and no other layer shrinks"):
        ClosedFormPooling().fit(model, loader(), "0")


BATCH = loader()[0]


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (BATCH, r"example: got a tuple of a tensor \(10, 3, 8, 8\), a tensor \(10,\), with which"),
        (list(BATCH), r"example: got a list of a tensor .*images of a batch without the labels"),
        ((3, 16, 16), r"example: got a tuple of 3, 16, 16, .* torch.zeros\(1, 3, 32, 32\)"),
        ([3, 16, 16], r"example: got a list of 3, 16, 16"),
    ],
    ids=["a batch", "a batch as a list", "a size", "a size as a list"],
)
def test_a_batch_or_a_size_is_no_example(example, message):
    with pytest.raises(ValueError, match=message):
        downsampling_layers(toy(), example)


def test_errors_of_the_networks_own_are_left_alone():
    class Broken(nn.Module):
        def forward(self, x):
            return x.no_such_thing

    with pytest.raises(AttributeError, match="no_such_thing"):
        downsampling_layers(Broken(), pictures())
