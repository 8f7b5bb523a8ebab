"""A network that does not take what a loader yields: that is described, and the way out told."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from foveapool import ClosedFormPooling, capture, downsampling_layers

from .toys import MAIN, anatomy, loader, toy

TO_FLOAT = r"unpack=lambda batch: \(batch\[0\]\.to\(torch\.float32\)"


def changed(change) -> list[tuple[object, Tensor]]:
    return [(change(images), labels) for images, labels in loader()]


def halved() -> nn.Module:
    return toy().half()


REFUSED = {
    "other channels": (
        toy,
        changed(lambda x: x[:, :2]),
        r"a tensor of shape \(10, 2, 8, 8\) and torch.float32 \(RuntimeError: .*3 channels, .*\); "
        r"give it what it was trained on, or pass unpack=lambda batch: \(inputs, labels\)",
    ),
    "arrays": (
        toy,
        changed(lambda x: x.double().numpy()),
        r"a NumPy array of shape \(10, 3, 8, 8\) and float64 .*pass unpack=lambda batch: "
        r"\(torch\.as_tensor\(batch\[0\]\)\.to\(torch\.float32\), batch\[1\]\)$",
    ),
    "bytes": (toy, changed(lambda x: x.byte()), TO_FLOAT + r" / 255, batch\[1\]\), scaled as"),
    "doubles": (toy, changed(lambda x: x.double()), TO_FLOAT + r", batch\[1\]\)$"),
    "floats into a half": (
        halved,
        loader(),
        r"tensors of torch\.float16: .*\.to\(torch\.float16\), .*, or autocast=torch\.float16$",
    ),
    "too few arguments": (
        lambda: nn.Bilinear(3, 3, 3),
        loader(),
        r"TypeError: .* missing 1 required .*inputs a tensor, a tuple of arguments or a dict",
    ),
    "unknown arguments": (
        toy,
        changed(lambda x: {"picture": x}),
        r"a dict with keys \['picture'\] .*unexpected keyword",
    ),
    "several images": (toy, changed(lambda x: [x, x]), "a list of 2 .*pass unpack"),
    "what a layer finds out itself": (
        lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm2d(3)),
        loader(),
        "ValueError: expected 4D input",
    ),
}


@pytest.mark.parametrize(("make", "batches", "message"), REFUSED.values(), ids=REFUSED)
def test_what_the_network_does_not_take_is_described(make, batches, message):
    model = make().train()
    before = anatomy(model)
    with pytest.raises(ValueError, match=message) as caught:
        ClosedFormPooling().fit(model, batches, MAIN)
    assert str(caught.value).startswith("loader: the network does not take the first batch, ")
    assert caught.value.__cause__ is not None
    assert anatomy(model) == before


REMEDIES = {
    "arrays": (
        toy,
        changed(lambda x: x.double().numpy()),
        lambda batch: (torch.as_tensor(batch[0]).to(torch.float32), batch[1]),
    ),
    "doubles": (
        toy,
        changed(lambda x: x.double()),
        lambda batch: (batch[0].to(torch.float32), batch[1]),
    ),
    "floats into a half": (
        halved,
        loader(),
        lambda batch: (batch[0].to(torch.float16), batch[1]),
    ),
}


@pytest.mark.parametrize(("make", "batches", "unpack"), REMEDIES.values(), ids=REMEDIES)
def test_a_batch_that_is_mended_as_advised_can_be_fitted(make, batches, unpack):
    fit = ClosedFormPooling().fit(make(), batches, MAIN, unpack=unpack)
    wanted = ClosedFormPooling().fit(toy(), loader(), MAIN)
    torch.testing.assert_close(fit.operator_.weight, wanted.operator_.weight, rtol=0, atol=0.02)


def test_an_error_in_a_later_batch_is_the_networks_own():
    batches = [*loader(), (torch.ones(4, 5, 8, 8), torch.arange(4) % 2)]
    with pytest.raises(RuntimeError, match="channels"):
        ClosedFormPooling().fit(toy(), batches, MAIN)


def test_a_data_set_in_the_place_of_a_loader_is_refused_and_its_loader_is_not():
    data = TensorDataset(*map(torch.cat, zip(*loader(), strict=True)))
    with pytest.raises(
        ValueError, match=r"got a TensorDataset, .* pass DataLoader\(dataset, batch"
    ):
        ClosedFormPooling().fit(toy(), data, MAIN)
    ClosedFormPooling().fit(toy(), DataLoader(data, batch_size=16), MAIN)


def test_a_data_set_that_yields_batches_is_read():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(loader())

    ClosedFormPooling().fit(toy(), Stream(), MAIN)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        (loader, "loader: got a function, which yields nothing, .*: call it, and pass what it re"),
        (None, "loader: got a NoneType, which yields nothing, wanted a DataLoader or a list"),
        (3, "loader: got a int, which yields nothing"),
    ],
)
def test_what_cannot_be_read_is_refused(batches, message):
    with pytest.raises(ValueError, match=message):
        ClosedFormPooling().fit(toy(), batches, MAIN)


def test_what_is_no_network_is_refused():
    calls = (
        lambda: ClosedFormPooling().fit("resnet18", loader(), MAIN),
        lambda: downsampling_layers("resnet18", torch.ones(1, 3, 8, 8)),
        lambda: next(capture("resnet18", loader(), MAIN)),
    )
    for call in calls:
        with pytest.raises(ValueError, match=r"model: got a str, wanted a network, a torch.nn.Mod"):
            call()


def test_arrays_of_bytes_are_told_to_be_scaled():
    batches = changed(lambda x: x.byte().numpy().astype(np.uint8))
    with pytest.raises(ValueError, match=r"\.to\(torch\.float32\) / 255, .*scaled as for its tr"):
        ClosedFormPooling().fit(toy(), batches, MAIN)
