"""Mistakes in fitting a stranger's network are named, and the network is left untouched."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from foveapool import ClosedFormPooling

from .toys import MAIN, POOL, anatomy, loader, toy


def relabeled(change) -> list[tuple[Tensor, Tensor]]:
    return [(images, change(labels)) for images, labels in loader()]


def poisoned() -> list[tuple[Tensor, Tensor]]:
    batches = [(images.clone(), labels) for images, labels in loader()]
    batches[2][0][1, 2, 3, 4] = torch.nan
    return batches


WRONG = {
    "an unknown layer": (
        loader(),
        {"layer": "block.mian"},
        {},
        r"near it are \['block.main'.*these shrink a map: \['block.main', .*'pool'",
    ),
    "a layer that does not shrink": (loader(), {"layer": "stem"}, {}, "'stem' .* does not shrink"),
    "a layer of another kind": (loader(), {"layer": "norm"}, {}, "a BatchNorm2d, wanted a conv"),
    "a module for a layer": (loader(), {"layer": toy().pool}, {}, "layer: got a MaxPool2d, wanted"),
    "modules for layers": (
        loader(),
        {"layer": nn.Sequential()},
        {},
        "layer: got a Sequential, want",
    ),
    "None for a layer": (loader(), {"layer": None}, {}, "layer: got a NoneType, wanted the name"),
    "a number among layers": (loader(), {"layer": [MAIN, 3]}, {}, "layer: got a int, wanted the"),
    "no layer": (loader(), {"layer": []}, {}, "layer: got no name, wanted one or more"),
    "an unknown mode": (loader(), {"mode": "before"}, {}, "mode: got 'before', wanted one of"),
    "text for progress": (loader(), {"progress": "yes"}, {}, "progress: got 'yes', wanted True,"),
    "no batch": ([], {}, {}, "loader: got no batch, wanted at least one"),
    "a type that is none": (loader(), {"autocast": True}, {}, "autocast: got True, wanted a type"),
    "one class": (relabeled(lambda y: y * 0), {}, {}, "fewer than two samples .*{1: 0}"),
    "a class too many": (loader(), {}, {"num_classes": 2}, r"labels: got \[2\], wanted 0 to 1"),
    "a class too few": (loader(), {}, {"num_classes": 5}, r"{3: 0, 4: 0}.*lower num_classes"),
    "classes from 1": (relabeled(lambda y: y + 1), {}, {}, r"{0: 0}.*number the classes from 0"),
    "a gap": (relabeled(lambda y: y * 2), {}, {}, r"{1: 0, 3: 0}.*from 0 without gaps$"),
    "negative labels": (relabeled(lambda y: y - 1), {}, {}, r"labels: got \[-1\], wanted 0 to"),
    "broken labels": (
        relabeled(lambda y: y / 2),
        {},
        {},
        r"labels: got .*torch.float32.*unpack=lambda batch: \(batch\[0\], batch\[1\].long\(\)\)",
    ),
    "labels in a row": (
        relabeled(lambda y: y[:, None]),
        {},
        {},
        r"labels: got shape \(10, 1\).*unpack=lambda .* batch\[1\].squeeze\(1\)\)$",
    ),
    "one-hot labels": (
        relabeled(lambda y: nn.functional.one_hot(y, 3)),
        {},
        {},
        r"labels: got shape \(10, 3\).*unpack=lambda .* batch\[1\].argmax\(1\)\)$",
    ),
    "labels for each place": (
        relabeled(lambda y: y[:, None, None].expand(-1, 8, 8)),
        {},
        {},
        r"labels: got shape \(10, 8, 8\).*unpack=lambda batch: \(inputs, labels\)$",
    ),
    "labels for others": (relabeled(lambda y: y[:3]), {}, {}, r"labels: got shape \(3,\)"),
    "huge labels": (
        relabeled(lambda y: y * 100_000),
        {},
        {},
        "labels: got 200000, wanted classes numbered from 0; pass num_classes",
    ),
    "numbers that are none": (poisoned(), {}, {}, "features: got nan in sample 1"),
    "two components after a layer": (
        loader(),
        {"mode": "after"},
        {"components": 2},
        r"components: got 2 for block.main \(Conv2d, mode 'after'\), wanted 1, or None",
    ),
    "two components for a pooling": (
        loader(),
        {"layer": POOL},
        {"components": 2},
        "components: got 2 for pool",
    ),
    "maps of two sizes": (
        [*loader(), *loader(size=10)],
        {},
        {},
        r"features: got 4 channels of \(10, 10\), wanted 4 of \(8, 8\)",
    ),
}


@pytest.mark.parametrize(("batches", "more", "settings", "message"), WRONG.values(), ids=WRONG)
def test_a_mistake_is_named_and_the_network_untouched(batches, more, settings, message):
    model = toy().train()
    before = anatomy(model)
    fit = ClosedFormPooling(**settings)
    with pytest.raises(ValueError, match=message):
        fit.fit(model, batches, **{"layer": MAIN, **more})
    assert anatomy(model) == before
    with pytest.raises(ValueError, match="not fitted yet"):
        fit.modules()


def test_a_loader_that_gives_other_samples_the_second_time_is_noticed():
    class Growing:
        reading = 0

        def __iter__(self):
            self.reading += 1
            yield from loader() if self.reading < 3 else loader()[:-1]

    with pytest.raises(ValueError, match=r"wanted 15 as in the first pass; give both passes"):
        ClosedFormPooling().fit(toy(), Growing(), MAIN)


class Shuffled:
    """A loader whose order is another in each reading."""

    def __init__(self) -> None:
        self.images, self.labels = map(torch.cat, zip(*loader(), strict=True))
        self.random, self.read = torch.Generator().manual_seed(0), 0

    def __iter__(self):
        for part in torch.randperm(45, generator=self.random).split(10):
            self.read += 1
            yield self.images[part], self.labels[part]


def test_drawing_from_a_loader_that_shuffles_is_refused_as_soon_as_it_shows():
    shuffled = Shuffled()
    message = r"class_cap: got 5 for a class of .*unpack=lambda batch: \(inputs, labels, ids\)"
    with pytest.raises(ValueError, match=message):
        ClosedFormPooling(class_cap=5).fit(toy(), shuffled, MAIN)
    assert shuffled.read < 6  # one is the look at the first batch, and a pass has five
    fit = ClosedFormPooling(class_cap=20).fit(toy(), Shuffled(), MAIN)
    wanted = ClosedFormPooling().fit(toy(), loader(), MAIN)
    torch.testing.assert_close(fit.scatter_.within, wanted.scatter_.within, rtol=1e-4, atol=1e-4)


def test_batches_of_other_sizes_may_be_drawn_from_in_one_order():
    class Resized:
        size = 10

        def __iter__(self):
            self.size -= 1
            return iter(loader(batch=self.size))

    ClosedFormPooling(class_cap=12, seed=2).fit(toy(), Resized(), MAIN)


def test_a_layer_whose_maps_do_not_vary_is_named():
    class Dying(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.alive, self.dead = nn.MaxPool2d(2), nn.MaxPool2d(2)

        def forward(self, x: Tensor) -> Tensor:
            return self.dead(self.alive(x) * 0)

    with pytest.raises(ValueError, match=r"layer: the maps at dead do not vary .*leave this layer"):
        ClosedFormPooling().fit(Dying(), loader(), ["alive", "dead"])


def test_channels_that_vary_by_rounding_alone_are_left_out_and_named_with_their_layer():
    class Leveled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pool = nn.MaxPool2d(2)

        def forward(self, x: Tensor) -> Tensor:
            return self.pool(torch.cat((x[:, :1], 1e6 + x[:, 1:].sigmoid() / 16), 1))

    with pytest.warns(UserWarning, match=r"layer pool: . channels vary .* left out: \[1"):
        fit = ClosedFormPooling().fit(Leveled(), loader(), "pool")
    assert (fit.scatter_.std > 0).tolist()[0] and not fit.scatter_.std[1:].any()


class Twins(nn.Module):
    """Two pictures that one pooling shrinks."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(x) - self.pool(x.flip(0))


def test_a_layer_that_is_used_twice_is_fitted_on_its_first_use_with_a_warning():
    with pytest.warns(
        UserWarning, match=r"layer: pool \(MaxPool2d\) is used 2 times .*first use"
    ) as told:
        fit = ClosedFormPooling().fit(Twins(), loader(), "pool")
    assert [warning.filename for warning in told] == [__file__]
    alone = ClosedFormPooling().fit(nn.Sequential(nn.MaxPool2d(2)), loader(), "0")
    assert torch.equal(fit.operator_.weight, alone.operator_.weight)


def test_a_map_too_large_for_the_memory_is_refused_before_anything_is_summed(monkeypatch):
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 4 * 2**20}.get)
    model = nn.Sequential(nn.Conv2d(1, 2, 3, 2, 1))
    batches = [(torch.zeros(2, 1, 224, 224), torch.tensor([0, 1]))]
    message = r"50176 places, .* needs 60\.4 GB .* has 17\.2 GB.*Pass a \(smaller\) window=r"
    with pytest.raises(ValueError, match=message):
        ClosedFormPooling(window=None).fit(model, batches, "0")


def test_features_that_are_no_maps_are_not_offered():
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pool, self.line = nn.MaxPool2d(2), nn.MaxPool2d(2)

        def forward(self, x: Tensor) -> Tensor:
            return self.line(self.pool(x)[:, 0])

    with pytest.raises(ValueError, match=r"'line' .*wanted one of \['pool'\]"):
        ClosedFormPooling().fit(Tokens(), loader(), "line")


def test_why_a_pooling_is_not_offered_is_said():
    indexed = nn.Sequential(nn.MaxPool2d(2, return_indices=True))
    with pytest.raises(ValueError, match=r"returns indices beside its map \(return_indices=True\)"):
        ClosedFormPooling().fit(indexed, loader(), "0")
    last = nn.Sequential(nn.MaxPool2d(4), nn.MaxPool2d(2))
    with pytest.raises(
        ValueError, match=r"'1' .*map to more than one place, wanted one of \['0'\]"
    ):
        ClosedFormPooling().fit(last, loader(), "1")


def test_a_pooling_that_is_used_on_two_sizes_is_refused_before_anything_is_summed(tmp_path):
    pool = nn.MaxPool2d(2)
    told: list[object] = []
    with pytest.raises(ValueError, match=r"layer: 0 \(MaxPool2d\) is used 2 times .* for each use"):
        ClosedFormPooling().fit(
            nn.Sequential(pool, nn.ReLU(), pool),
            loader(),
            "0",
            progress=told.append,
            resume=tmp_path / "sums",
        )
    assert not told and not (tmp_path / "sums").exists()


def test_a_network_without_numbers_is_refused():
    with pytest.raises(ValueError, match="meta device, which hold no numbers"):
        ClosedFormPooling().fit(toy().to("meta"), loader(), MAIN)


def test_what_is_a_pooling_is_told_by_its_make_and_not_by_its_name():
    class PooledConv2d(nn.Conv2d):
        """A convolution, whatever it is called."""

    class Down(nn.AvgPool2d):
        """A pooling, whatever it is called."""

    model = nn.Sequential(PooledConv2d(3, 6, 3, 2, 1), Down(2))
    two = ClosedFormPooling(components=2)
    assert two.fit(model, loader(), "0").operator_.components == 2
    with pytest.raises(ValueError, match=r"components: got 2 for 1 \(Down, mode 'replace'\)"):
        two.fit(model, loader(), "1")
