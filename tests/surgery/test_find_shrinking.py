"""Whatever shrinks a map is listed, or named with the module that holds it."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import nn

from foveapool import (
    ClosedFormPooling,
    capture,
    compute_scatter,
    downsampling_layers,
    restore,
)
from foveapool.surgery.loader import LabeledBatch

from . import shrinking as own
from .toys import anatomy

LAYERS = {
    "blurpool": lambda: own.BlurPool(6),
    "blurpool with a module that pads": lambda: own.PaddedBlurPool(6),
    "own convolution": lambda: own.OwnConv(6, 12),
    "subsampling": own.Subsample,
    "depthwise": lambda: nn.Conv2d(6, 12, 5, 2, 2, groups=6),
    "grouped": lambda: nn.Conv2d(6, 12, 3, 2, 1, groups=3),
    "dilated": lambda: nn.Conv2d(6, 12, 3, 2, 2, dilation=2),
    "scaled": lambda: type("Scaled", (nn.Upsample,), {"__module__": "mine"})(scale_factor=0.5),
}
layers = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)


def network(layer: nn.Module, channels: int = 6) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), nn.ReLU(), layer).eval()


def loader(size: int = 8, count: int = 24) -> list[tuple[torch.Tensor, torch.Tensor]]:
    labels = torch.arange(count) % 3
    images = torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(1))
    images[:, :, :4] += labels[:, None, None, None]
    return [(images[:16], labels[:16]), (images[16:], labels[16:])]


@layers
@pytest.mark.parametrize("mode", ["replace", "after"])
def test_a_layer_of_any_make_is_listed_fitted_replaced_and_restored(make, mode):
    model, images = network(make()), loader()[0][0]
    before, wanted = anatomy(model), model(images)
    found = downsampling_layers(model, images)
    assert [(each.name, each.in_shape, each.out_shape) for each in found] == [("2", (8, 8), (4, 4))]
    assert (found[0].in_channels, found[0].out_channels) == (6, wanted.shape[1])
    assert not found.unlisted
    if mode == "after" and not hasattr(model[2], "stride"):
        with pytest.raises(ValueError, match=r"2: got a .* has no stride that could be 1, w"):
            ClosedFormPooling().fit(model, loader(), "2", mode)
    else:
        done = ClosedFormPooling().fit(model, loader(), found, mode).replace(model, trainable=True)
        assert done.changes[0].names == ("2",)
        pooled = model(images)
        assert pooled.shape == wanted.shape and not torch.allclose(pooled, wanted)
        pooled.square().sum().backward()
        assert float(model[2].pool.weight.grad.abs().max()) > 0
        restore(model)
    assert anatomy(model) == before
    assert torch.equal(model(images), wanted)


@pytest.mark.parametrize(
    "name", ["blurpool", "blurpool with a module that pads", "own convolution"]
)
def test_behind_a_layer_of_another_make_a_local_pooling_changes_nothing(name):
    model, images = network(LAYERS[name]()), loader()[0][0]
    wanted = model(images)
    fit = ClosedFormPooling(alpha=1e9, alpha_unit="trace").fit(model, loader(), "2", "after")
    fit.replace(model)
    torch.testing.assert_close(model(images), wanted, rtol=1e-4, atol=1e-4)


class Tokens(nn.Module):
    """Maps as tokens, merged."""

    def __init__(self, merging: nn.Module) -> None:
        super().__init__()
        self.merging = merging

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.merging(x.flatten(2).mT).mean(1)


NAMED = {
    "function": (own.PooledBlock(6, 8), "2 (PooledBlock): F.max_pool2d, 8x8x8 -> 8x4x4; make it"),
    "space to depth": (nn.PixelUnshuffle(2), "2 (PixelUnshuffle): F.pixel_unshuffle, 6x8x8 -> "),
    "slices": (Tokens(own.PatchMerging(6, 8)), "2.merging (PatchMerging): a slice in steps, 8x8x6"),
    "reshaping": (Tokens(own.RearrangedMerging(6, 8)), "2.merging (RearrangedMerging): by its own"),
    "channels last": (
        nn.Sequential(own.Permute(0, 2, 3, 1), own.ChannelsLast(), own.Permute(0, 3, 1, 2)),
        "2.1 (ChannelsLast): a slice in steps, 8x8x6 -> 4x4x6",
    ),
}


@pytest.mark.parametrize(("block", "line"), NAMED.values(), ids=NAMED)
def test_what_cannot_be_replaced_is_named_with_the_module_that_holds_it(block, line):
    found = downsampling_layers(network(block), loader()[0][0])
    assert list(found) == []
    assert len(found.unlisted) == 1 and str(found.unlisted[0]).startswith(line)
    assert str(found.unlisted[0]) in str(found)


def test_a_slice_of_a_line_is_named():
    model = nn.Sequential(nn.Conv1d(2, 4, 3, padding=1), own.EveryOther(4))
    found = downsampling_layers(model, torch.zeros(2, 2, 16))
    assert list(map(str, found.unlisted)) == ["1 (EveryOther): a slice in steps, 4x16 -> 4x8"]


def test_pooled_queries_of_attention_are_named():
    config = transformers.HieraConfig(
        image_size=[32, 32],
        embed_dim=8,
        depths=[1, 1],
        num_heads=[1, 2],
        num_query_pool=1,
        masked_unit_size=[4, 4],
    )
    found = downsampling_layers(transformers.HieraModel(config).eval(), torch.rand(1, 3, 32, 32))
    assert [each.name for each in found] == ["embeddings.patch_embeddings.projection"]
    (named,) = map(str, found.unlisted)
    layer = "encoder.stages.1.layers.0.attn (HieraMaskUnitAttention)"
    assert named == f"{layer}: by its own code, 64x8 -> 16x16"


@pytest.mark.parametrize(
    "block",
    [
        nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)),
        nn.Sequential(own.Permute(0, 2, 3, 1), nn.Linear(6, 2), own.Permute(0, 3, 1, 2)),
        nn.Sequential(nn.Flatten(2), nn.Linear(64, 32)),
        nn.Sequential(nn.Flatten(2), own.Rotary(64)),
        nn.Conv2d(6, 6, 3),
    ],
    ids=["global", "fewer channels, last", "fewer numbers a token", "rotary", "edges lost"],
)
def test_nothing_is_named_where_no_map_shrinks_by_half(block):
    found = downsampling_layers(network(block), loader()[0][0])
    assert not found and not found.unlisted


def test_a_pattern_means_layers_and_none_that_merely_may_be_one():
    model = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), own.Permute(0, 1, 2, 3), own.BlurPool(6))
    fit = ClosedFormPooling().fit(model, loader(), ".*")
    assert list(fit.operators_) == ["2"]
    assert [change.names for change in fit.replace(model).changes] == [("2",)]


@pytest.mark.parametrize("sample_first", [True, False])
@pytest.mark.parametrize("mode", ["replace", "after", "mix"])
def test_heads_that_are_folded_into_the_batch_have_the_labels_of_their_images(sample_first, mode):
    model, images = network(own.PooledHeads(6, 2, sample_first)), loader()[0][0]
    (found,) = downsampling_layers(model, images)
    assert (found.maps_per_image, found.in_channels) == (2, 3)
    assert "Conv2d, 2 maps an image" in str(downsampling_layers(model, images))
    fit = ClosedFormPooling().fit(model, loader(), "2.pool", mode)
    assert fit.layers_["2.pool"].sample_first == sample_first
    # The same by hand: every image's maps with its label.
    taken, labels = [], []
    for maps, batch in capture(model, loader(), "2.pool", mode=mode):
        taken.append(maps["2.pool"])
        labels += [batch.labels.repeat_interleave(2) if sample_first else batch.labels.repeat(2)]
    window = fit.scatter_.window
    scatter = compute_scatter(torch.cat(taken), torch.cat(labels), window=window)
    torch.testing.assert_close(fit.scatter_.between, scatter.between, rtol=1e-4, atol=1e-5)
    assert int(fit.scatter_.counts.sum()) == 48
    wanted = model(images)
    fit.replace(model)
    assert model(images).shape == wanted.shape
    restore(model)
    assert torch.equal(model(images), wanted)


def test_ids_of_folded_maps_are_those_of_images_and_of_parts():
    batch = LabeledBatch(None, torch.tensor([0, 1]), torch.tensor([7, 9]))
    assert batch.repeat(1, True) is batch
    assert batch.repeat(2, True).ids.tolist() == [14, 15, 18, 19]
    assert batch.repeat(2, False).ids.tolist() == [14, 18, 15, 19]
    assert batch.repeat(2, False).labels.tolist() == [0, 1, 0, 1]


def test_maps_that_belong_to_no_image_are_refused():
    class Crops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pool = nn.MaxPool2d(2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.pool(torch.cat([x, x[:1]]))[: len(x)]

    with pytest.raises(ValueError, match="reads 17 maps of 16 images, and they cannot be told"):
        ClosedFormPooling().fit(network(Crops()), loader(), "2.pool")
