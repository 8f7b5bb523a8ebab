"""Which layers shrink a map: found in networks of any make, which are left as they were."""

import pytest
import torch
from torch import nn

from foveapool import downsampling_layers
from foveapool.surgery.find import DownsamplingLayers
from foveapool.surgery.forward import get_module


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.main = nn.Conv2d(8, 16, 3, 2, 1)
        self.shortcut = nn.Conv2d(8, 16, 1, 2)
        self.pool = nn.MaxPool2d(2)
        self.end = nn.AdaptiveAvgPool2d(1)

    def forward(self, x, twice=False):
        x = self.norm(self.stem(x)).relu()
        x = self.pool(self.main(x) + self.shortcut(x))
        return self.end(x).flatten(1) * (2 if twice else 1)


def test_shrinking_layers_are_found_in_order_with_their_sizes():
    found = downsampling_layers(Residual(), torch.ones(2, 3, 12, 10))
    assert [layer.name for layer in found] == ["main", "shortcut", "pool"]
    main, shortcut, pool = found
    assert (main.kind, main.in_channels, main.out_channels) == ("Conv2d", 8, 16)
    assert (main.in_shape, main.out_shape) == ((12, 10), (6, 5))
    assert (main.components, main.exact, pool.components, pool.exact) == (2, True, 1, True)
    assert (main.siblings, shortcut.siblings, pool.siblings) == (("shortcut",), ("main",), ())


def test_printed_they_are_a_table_with_a_line_for_each():
    head, *lines = str(downsampling_layers(Residual(), torch.ones(2, 3, 12, 10))).splitlines()
    assert head.split()[:5] == ["layer", "kind", "channels", "map", "components"]
    assert [line.split()[0] for line in lines] == ["main", "shortcut", "pool"]
    assert lines[0].endswith("8 -> 16   12x10 -> 6x5  2           1 MB, under 1 s  shortcut")
    assert len({line.rindex("->") for line in lines[:2]}) == 1
    assert not any(line.endswith(" ") for line in lines)
    uneven = nn.Sequential(nn.Conv2d(8, 20, 3, 2, 1))
    assert "2 and a 1x1 convolution" in str(downsampling_layers(uneven, torch.ones(1, 8, 16, 16)))


def test_an_uneven_ratio_of_channels_gets_the_nearest_number_of_components():
    model = nn.Sequential(nn.Conv2d(8, 20, 3, 2, 1), nn.Conv2d(20, 6, 3, 2, 1))
    first, second = downsampling_layers(model, torch.ones(1, 8, 16, 16))
    assert (first.components, first.exact) == (2, False)
    assert (second.components, second.exact) == (1, False)


@pytest.mark.parametrize("example", [(torch.ones(1, 3, 8, 8), True), {"x": torch.ones(1, 3, 8, 8)}])
def test_arguments_may_come_as_a_tuple_or_a_dict(example):
    assert len(downsampling_layers(Residual(), example)) == 3


def test_the_network_is_left_as_it_was_even_when_the_dry_run_fails():
    model = Residual().train()
    model.stem.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    downsampling_layers(model, torch.randn(2, 3, 8, 8))
    with pytest.raises(RuntimeError):
        downsampling_layers(model, torch.randn(2, 4, 8, 8))
    assert model.training and not model.stem.training and model.norm.training
    assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())
    assert all(not module._forward_hooks for module in model.modules())


def test_a_shared_layer_is_counted_each_time_it_is_passed():
    pool = nn.MaxPool2d(2)
    (only,) = downsampling_layers(nn.Sequential(pool, nn.ReLU(), pool), torch.ones(1, 1, 8, 8))
    assert (only.calls, only.alike) == (2, False)
    assert "MaxPool2d, used 2 times" in str(DownsamplingLayers([only]))


def test_a_layer_that_is_passed_twice_with_one_size_reads_alike():
    class Twins(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool, self.late = nn.MaxPool2d(2), nn.AdaptiveMaxPool2d(4)

        def forward(self, x):
            # It shrinks nothing the first time, and counts all the same.
            return self.late(self.pool(x)) + self.late(x) + self.pool(-x)

    found = {each.name: each for each in downsampling_layers(Twins(), torch.ones(1, 1, 8, 8))}
    assert (found["pool"].calls, found["pool"].alike) == (2, True)
    assert (found["late"].calls, found["late"].alike) == (2, False)


def test_a_network_that_pools_by_functions_gets_a_hint():
    class Functional(nn.Module):
        def forward(self, x):
            return nn.functional.avg_pool2d(x, 2)

    found = downsampling_layers(Functional(), torch.ones(1, 1, 8, 8))
    assert found == []
    (only,) = found.unlisted
    assert (only.holder, only.in_shape, only.out_shape) == ("", (1, 8, 8), (1, 4, 4))
    assert str(found).splitlines()[1:] == [
        "shrinks maps too, and cannot be replaced as it stands:",
        "  the network (Functional): F.avg_pool2d, 1x8x8 -> 1x4x4; make it a module, nn.AvgPool2d",
    ]


@pytest.mark.parametrize(
    ("layer", "out_shape"),
    [
        (nn.LPPool2d(2, 3), (2, 2)),
        (nn.AvgPool2d(2, (2, 1)), (4, 7)),
        (nn.AdaptiveMaxPool2d((4, None)), (4, 8)),
        (nn.FractionalMaxPool2d(2, output_size=5), (5, 5)),
        (nn.Conv2d(3, 3, (1, 8), (2, 8)), (4, 1)),
    ],
    ids=str,
)
def test_every_kind_of_shrinking_layer_is_found(layer, out_shape):
    (only,) = downsampling_layers(nn.Sequential(layer), torch.ones(1, 3, 8, 8))
    assert (only.kind, only.out_shape) == (type(layer).__name__, out_shape)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 3, 3),
        nn.MaxPool2d(3, 1),
        nn.AdaptiveAvgPool2d(8),
        nn.AdaptiveAvgPool2d((1, 1)),
        nn.AdaptiveAvgPool2d(16),
        nn.Conv2d(3, 3, 8, 8),
        nn.Conv2d(3, 3, 1, 2, padding=5),
        nn.Conv2d(3, 3, 1, (4, 1), padding=(0, 1)),
        nn.MaxPool2d(2, return_indices=True),
        nn.ConvTranspose2d(3, 3, 2, 2),
    ],
    ids=str,
)
def test_layers_that_keep_or_widen_a_map_or_leave_one_place_are_not(layer):
    assert downsampling_layers(nn.Sequential(layer), torch.ones(1, 3, 8, 8)) == []


def test_a_network_that_is_one_layer_has_none_that_could_be_replaced():
    assert downsampling_layers(nn.MaxPool2d(2), torch.ones(1, 3, 8, 8)) == []


def test_names_are_those_inside_of_wrappers():
    model = Residual()
    wanted = downsampling_layers(model, torch.ones(1, 3, 8, 8))
    for wrapped in (nn.DataParallel(model), torch.compile(nn.DataParallel(model))):
        # Where there is a GPU, the wrapper has moved the network there.
        example = torch.ones(1, 3, 8, 8, device=model.stem.weight.device)
        assert downsampling_layers(wrapped, example) == wanted


def test_a_dry_run_can_be_made_in_inference_mode():
    with torch.inference_mode():
        assert len(downsampling_layers(Residual(), torch.ones(1, 3, 8, 8))) == 3


def test_where_changes_in_place_are_not_counted_no_two_layers_are_said_to_read_the_same():
    class Frozen(Residual):
        forward = torch.inference_mode()(Residual.forward)

    model, example = Frozen(), torch.ones(1, 3, 8, 8)
    assert not any(found.siblings for found in downsampling_layers(model, example))
    assert any(found.siblings for found in downsampling_layers(Residual(), example))


def test_a_wrong_name_is_answered_with_near_ones():
    with pytest.raises(ValueError, match=r"got 'shortcot'.*near it are \['shortcut'"):
        get_module(Residual(), "shortcot")
    assert isinstance(get_module(Residual(), "pool"), nn.MaxPool2d)
