"""What loaders yield: pairs, dicts, or whatever a function makes of it."""

from __future__ import annotations

from collections import UserDict
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from foveapool import ClosedFormPooling, capture
from foveapool.surgery.loader import LabeledBatch, check_rereadable, unpack_batch

from .toys import MAIN, loader, toy


def operator(batches, **more) -> Tensor:
    return ClosedFormPooling().fit(toy(), batches, MAIN, **more).operator_.weight


@pytest.fixture(scope="module")
def wanted() -> Tensor:
    return operator(loader())


def joined() -> tuple[Tensor, Tensor]:
    images, labels = zip(*loader(), strict=True)
    return torch.cat(images), torch.cat(labels)


FORMS = {
    "lists": lambda x, y: [x, y],
    "more than needed": lambda x, y: (x, y, "path"),
    "labels as a list": lambda x, y: (x, y.tolist()),
    "labels as an array": lambda x, y: (x, y.numpy()),
    "labels of 16 bits": lambda x, y: (x, y.numpy().astype("uint16")),
    "labels of 8 bits": lambda x, y: (x, y.byte()),
    "a dict of transformers": lambda x, y: {"pixel_values": x, "labels": y},
    "a dict of datasets": lambda x, y: {"img": x, "fine_label": y, "id": [1]},
    "a dict that is none": lambda x, y: UserDict({"image": x, "label": y}),
    "a tuple of arguments": lambda x, y: ((x,), y),
    "a dict of arguments": lambda x, y: ({"x": x}, y),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_common_forms_of_batches_are_understood(form, wanted):
    assert torch.equal(operator([form(*batch) for batch in loader()]), wanted)


def test_a_data_loader_is_read_in_workers_too(wanted):
    data = TensorDataset(*joined())
    assert torch.equal(operator(DataLoader(data, batch_size=10)), wanted)
    assert torch.equal(operator(DataLoader(data, batch_size=10, num_workers=1)), wanted)


@pytest.mark.parametrize("alone", [int, torch.squeeze], ids=["a number", "a tensor without axes"])
def test_a_batch_of_one_may_come_with_its_label_alone(alone):
    ones = list(zip(*(part.split(1) for part in joined()), strict=True))
    assert torch.equal(operator([(x, alone(y)) for x, y in ones]), operator(ones))


def test_a_function_unpacks_what_is_unheard_of(wanted):
    batches = [{"left": {"picture": x}, "right": y} for x, y in loader()]

    def unpack(batch):
        return batch["left"]["picture"], batch["right"]

    assert torch.equal(operator(batches, unpack=unpack), wanted)


def test_ids_from_a_function_make_the_order_irrelevant():
    images, labels = joined()
    numbers = torch.arange(45)

    class Shuffled:
        def __iter__(self):
            order = torch.randperm(45)
            for part in order.split(10):
                yield numbers[part], images[part], labels[part]

    class InOrder(Shuffled):
        def __iter__(self):
            yield from zip(numbers.split(10), images.split(10), labels.split(10), strict=True)

    settings = {"class_cap": 12, "seed": 1}
    weights = [
        ClosedFormPooling(**settings)
        .fit(toy(), each, MAIN, unpack=lambda batch: (batch[1], batch[2], batch[0]))
        .operator_.weight
        for each in (Shuffled(), InOrder())
    ]
    torch.testing.assert_close(*weights, rtol=1e-4, atol=1e-5)


def test_labels_that_are_no_classes_are_captured_as_they_came():
    images, labels = loader()[0]
    _, batch = next(capture(toy(), [(images, labels / 2)], MAIN))
    assert torch.equal(batch.labels, labels / 2)


def test_several_images_a_sample_go_to_the_network_as_they_came():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pool = nn.MaxPool2d(2)

        def forward(self, pair: list[Tensor]) -> Tensor:
            return self.pool(pair[0] + pair[1])

    images, labels = loader()[0]
    maps, _ = next(capture(Twice(), [([images, images], labels)], "pool"))
    assert torch.equal(maps["pool"], 2 * images)


def test_the_first_sample_is_cut_out_of_every_part():
    images, labels = loader()[0]
    batch = LabeledBatch(
        {"x": images, "pair": [images, (images,)], "scale": torch.tensor(2.0)}, labels
    )
    first = batch.first()
    assert first["x"].shape[0] == first["pair"][0].shape[0] == first["pair"][1][0].shape[0] == 1
    assert first["scale"] == 2


def test_what_has_not_one_row_a_sample_is_left_whole():
    images, labels = loader()[0]
    scale = torch.tensor([1.0, 2.0])
    batch = LabeledBatch({"pictures": list(images), "scale": scale}, labels)
    assert torch.equal(torch.stack(batch.first()["pictures"]), images)
    assert torch.equal(batch.first()["scale"], scale)


class Sample(NamedTuple):
    picture: Tensor
    size: int


def test_a_named_tuple_keeps_its_names():
    class Asking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pool = nn.MaxPool2d(2)

        def forward(self, sample: Sample) -> Tensor:
            return self.pool(sample.picture)

    images, labels = loader()[0]
    maps, batch = next(capture(Asking(), [((Sample(images, 8),), labels)], "pool"))
    assert torch.equal(maps["pool"], images)
    assert batch.inputs[0].size == 8


def test_what_comes_from_a_gpu_has_arrived_before_it_is_read():
    asked = []

    class Told(torch.Tensor):
        def to(self, device, non_blocking=False):
            asked.append(non_blocking)
            return self

    tensor = torch.ones(2).as_subclass(Told)
    LabeledBatch(tensor, tensor).to(torch.device("cpu"))
    assert asked == [False, False]


WRONG = {
    "a tensor": (torch.ones(4, 3, 8, 8), "loader: got batches of Tensor, wanted .*unpack="),
    "one alone": ((torch.ones(4, 3, 8, 8),), "loader: got batches of tuple"),
    "unknown keys": ({"a": 1, "labels": 2}, r"loader: got a dict with keys \['a', 'labels'\]"),
    "words": ((torch.ones(1, 3, 8, 8), ["cat"]), "labels: got a list .*wanted whole numbers"),
    "boxes": ((torch.ones(1, 3, 8, 8), {"boxes": 1}), "labels: got a dict"),
}


@pytest.mark.parametrize(("batch", "message"), WRONG.values(), ids=WRONG)
def test_other_batches_are_refused_with_the_way_out(batch, message):
    with pytest.raises(ValueError, match=message):
        operator([batch])


def test_a_function_that_makes_too_much_of_a_batch_is_refused():
    with pytest.raises(ValueError, match="unpack: got 1 parts, wanted"):
        unpack_batch((1, 2), lambda batch: batch[:1])


def test_a_function_that_forgets_to_return_is_named():
    with pytest.raises(ValueError, match=r"unpack: got None, wanted \(inputs, labels\)"):
        unpack_batch((1, 2), lambda batch: None)


def test_names_of_files_are_no_ids():
    batch = (torch.ones(2, 3, 8, 8), torch.tensor([0, 1]), ["a.png", "b.png"])
    with pytest.raises(ValueError, match=r"ids: got a list .*wanted whole numbers, one a sample"):
        unpack_batch(batch, lambda batch: batch)


@pytest.mark.parametrize(
    "once", [(batch for batch in loader()), iter(loader()), zip(*joined(), strict=True)]
)
def test_a_loader_that_can_be_read_once_is_refused_before_it_is_read(once):
    with pytest.raises(ValueError, match=r"loader: got a \w+, which can be read only once"):
        operator(once)


def test_a_data_loader_is_not_started_to_see_whether_it_can_be_read_twice():
    class Counting(DataLoader):
        started = 0

        def __iter__(self):
            self.started += 1
            return super().__iter__()

    counting = Counting(TensorDataset(*joined()), batch_size=10)
    check_rereadable(counting)
    assert counting.started == 0
