"""Maps of another size: refused, or pooled by an operator that is carried over to it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from foveapool import ClosedFormPooling, LinearPool2d, replace, restore

from .toys import MAIN, POOL, pictures, toy

modes = pytest.mark.parametrize("mode", ["replace", "after"])


class Standardised(nn.Conv2d):
    """A convolution that pads on its own."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(nn.functional.pad(x, (0, 1, 1, 1)))


class Windowed(nn.MaxPool2d):
    """A pooling whose last window, which overhangs, is not there at stride 1."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.relu())


LAYERS = {
    "padded conv": lambda: nn.Conv2d(3, 6, 3, 2, 1),
    "conv": lambda: nn.Conv2d(3, 6, 3, 2),
    "valid conv": lambda: nn.Conv2d(3, 6, 2, 2, "valid"),
    "max": lambda: nn.MaxPool2d(2),
    "padded max": lambda: nn.MaxPool2d(3, 2, 1),
    "overhanging average": lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True),
    "power": lambda: nn.LPPool2d(2, 2),
    "overhanging power": lambda: nn.LPPool2d(3, 2, ceil_mode=True),
    "a stranger's conv": lambda: Standardised(3, 6, 3, 2),
    "told a size": lambda: nn.AdaptiveAvgPool2d((4, 5)),
}


def random_pool(layer: nn.Module, size: tuple[int, int], mode: str) -> LinearPool2d:
    """A pooling that could have been fitted on the layer."""
    wanted = tuple(layer(torch.zeros(1, 3, *size)).shape[2:])
    source = size
    if mode == "after":
        steps = getattr(layer, "stride", None) or getattr(layer, "kernel_size", None) or 2
        steps = steps if isinstance(steps, tuple) else (steps, steps)
        source = (wanted[0] * steps[0], wanted[1] * steps[1])
    random = torch.Generator().manual_seed(0)
    weight = torch.rand(1, wanted[0] * wanted[1], source[0] * source[1], generator=random)
    return LinearPool2d(weight, in_shape=source, out_shape=wanted)


@modes
def test_by_default_another_size_is_an_error_that_says_what_to_do(mode):
    model = toy()
    replace(model, {MAIN: LinearPool2d.average((8, 8), (4, 4))}, mode=mode)
    with pytest.raises(ValueError, match=r"got a map of shape .*12, 12.* wanted .*8, 8.*resized"):
        model(pictures(2, 12))


@modes
@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_maps_of_any_size_get_the_size_that_the_layer_would_have_given(make, mode):
    layer, size = make(), (8, 10)
    pool = random_pool(layer, size, mode)
    sizes = [(8, 10), (12, 12), (11, 9), (9, 14), (16, 7)]
    wanted = [layer(torch.zeros(1, 3, *each)).shape[2:] for each in sizes]
    model = nn.Sequential(layer)
    replace(model, {"0": pool}, mode=mode, on_resize="interpolate", in_shapes={"0": size})
    found = [model(torch.randn(2, 3, *each)).shape for each in sizes]
    channels = 6 if isinstance(layer, nn.Conv2d) else 3
    assert found == [(2, channels, *each) for each in wanted]


@pytest.mark.parametrize("size", [6, 10, 32])
def test_average_pooling_stays_average_pooling(size):
    model, maps = nn.Sequential(nn.AvgPool2d(2)), torch.randn(2, 3, size, size)
    wanted = model(maps)
    replace(model, {"0": LinearPool2d.average((8, 8), (4, 4))}, on_resize="interpolate")
    torch.testing.assert_close(model(maps), wanted, rtol=1e-5, atol=1e-6)


@pytest.fixture
def counted(monkeypatch):
    """The sizes for which an operator was computed."""
    sizes = []
    original = LinearPool2d.resized_weight

    def counting(self, new_in_shape, new_out_shape):
        sizes.append(tuple(new_in_shape))
        return original(self, new_in_shape, new_out_shape)

    monkeypatch.setattr(LinearPool2d, "resized_weight", counting)
    return sizes


def interpolating(trainable: bool = False) -> tuple[nn.Module, LinearPool2d]:
    pool = LinearPool2d.random((8, 8), (4, 4), generator=torch.Generator().manual_seed(0))
    if not trainable:
        pool = LinearPool2d(pool.weight, torch.ones(3), in_shape=(8, 8), out_shape=(4, 4))
    model = nn.Sequential(nn.MaxPool2d(2))
    replace(model, {"0": pool}, on_resize="interpolate")
    return model, pool


def test_an_operator_is_computed_once_for_each_size(counted):
    model, _ = interpolating()
    first = [model(pictures(2, size)) for size in (8, 10, 12)]
    again = [model(pictures(2, size)) for size in (8, 10, 12)]
    assert counted == [(10, 10), (12, 12)]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def in_place(pool):
    with torch.no_grad():
        pool.weight.mul_(2)


def another_tensor(pool):
    pool.weight = pool.weight * 2


def loaded(pool):
    pool.load_state_dict({"weight": pool.weight * 2, "mean": pool.mean * 2})


@pytest.mark.parametrize("change", [in_place, another_tensor, loaded])
def test_an_operator_is_computed_again_when_the_weights_changed(counted, change):
    model, pool = interpolating()
    before = model(pictures(2, 10))
    change(pool)
    after = model(pictures(2, 10))
    fresh = copy.deepcopy(pool).resized((10, 10), (5, 5))
    assert not torch.allclose(after, before)
    torch.testing.assert_close(after, fresh(pictures(2, 10)))
    assert model(pictures(2, 10)) is not None and len(counted) == 3


def test_an_operator_is_computed_again_for_another_type(counted):
    model, _ = interpolating()
    before = model(pictures(2, 10))
    model.double()
    after = model(pictures(2, 10).double())
    assert after.dtype == torch.float64 and counted == [(10, 10)] * 2
    torch.testing.assert_close(after.float(), before)


def test_copies_and_files_carry_no_computed_operators():
    model, _ = interpolating()
    model(pictures(2, 10))
    assert model[0]._carried and not copy.deepcopy(model)[0]._carried
    assert list(model.state_dict()) == ["0.pool.weight", "0.pool.mean"]


def test_gradients_reach_a_trainable_operator_through_another_size(counted):
    model, pool = interpolating(trainable=True)
    model(pictures(2, 10)).square().sum().backward()
    assert float(pool.weight.grad.abs().sum()) > 0
    with torch.no_grad():
        pool.weight -= 0.1 * pool.weight.grad
    after = model(pictures(2, 10))
    torch.testing.assert_close(after, pool.resized((10, 10), (5, 5))(pictures(2, 10)))


def test_a_trainable_operator_is_kept_while_nobody_trains_it(counted):
    model, pool = interpolating(trainable=True)
    with torch.no_grad():
        first, again = model(pictures(2, 10)), model(pictures(2, 10))
        assert torch.equal(first, again) and len(counted) == 1
        pool.weight.mul_(2)
        torch.testing.assert_close(model(pictures(2, 10)), 2 * first)
    assert model(pictures(2, 10)).requires_grad


@pytest.mark.parametrize("frozen_first", [True, False])
def test_freezing_and_unfreezing_between_calls_is_followed(frozen_first):
    model, pool = interpolating(trainable=True)
    for frozen in (frozen_first, not frozen_first):
        pool.weight.requires_grad_(not frozen)
        with torch.no_grad():
            found = model(pictures(2, 10))
            torch.testing.assert_close(found, pool.resized((10, 10), (5, 5))(pictures(2, 10)))
        if not frozen:
            changed_by_a_fused_optimizer(pool.weight)


def changed_by_a_fused_optimizer(weight):
    weight.grad = torch.ones_like(weight)
    torch.optim.SGD([weight], 1.0, fused=True).step()


def changed_as_data(weight):
    weight.data.sub_(1)


def changed_in_place_of_another(weight):
    weight.data = weight.data - 1


@pytest.mark.parametrize(
    "change", [changed_by_a_fused_optimizer, changed_as_data, changed_in_place_of_another]
)
def test_a_change_that_leaves_no_trace_is_seen(change):
    model, pool = interpolating(trainable=True)
    with torch.no_grad():
        model(pictures(2, 10))
    change(pool.weight)
    with torch.no_grad():
        found = model(pictures(2, 10))
        torch.testing.assert_close(found, pool.resized((10, 10), (5, 5))(pictures(2, 10)))


def test_what_was_computed_for_inference_can_be_trained_through_later():
    model, _ = interpolating()
    with torch.inference_mode():
        wanted = model(pictures(2, 10))
    maps = pictures(2, 10).requires_grad_()
    found = model(maps)
    found.sum().backward()
    assert torch.equal(found, wanted) and float(maps.grad.abs().sum()) > 0


def test_two_layers_of_a_network_take_another_size_and_the_old_one_again():
    model = toy()
    wanted = model(pictures(2, 12))
    pools = {
        MAIN: LinearPool2d.average((8, 8), (4, 4), 2),
        POOL: LinearPool2d.average((4, 4), (2, 2)),
    }
    replace(model, pools, on_resize="interpolate")
    small = model(pictures(2, 8))
    assert model(pictures(2, 12)).shape == (2, 3)
    assert torch.equal(model(pictures(2, 8)), small)
    restore(model)
    assert torch.equal(model(pictures(2, 12)), wanted)


def test_where_windows_overhang_at_another_size_only_the_layer_is_asked():
    layer, size = Windowed(3, 2, ceil_mode=True), (9, 11)
    model, wanted = nn.Sequential(layer), layer(torch.zeros(1, 3, 12, 12)).shape
    pool = random_pool(layer, size, "after")
    replace(model, {"0": pool}, mode="after", on_resize="interpolate", in_shapes={"0": size})
    assert wanted == (1, 3, 6, 6) == model(torch.zeros(1, 3, 12, 12)).shape
    assert model[0].stage.offsets[12, 12] == (0, 0)


@pytest.mark.parametrize(("kind", "mode"), [("max", "replace"), ("padded conv", "after")])
def test_compiled_networks_follow_the_size_too_without_a_graph_break(kind, mode):
    torch.compiler.reset()
    model = nn.Sequential(LAYERS[kind]())
    pool = random_pool(model[0], (8, 8), mode)
    replace(model, {"0": pool}, mode=mode, on_resize="interpolate")
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        for size in (8, 10, 10, 8):
            torch.testing.assert_close(compiled(pictures(2, size)), model(pictures(2, size)))


def test_sizes_that_only_the_output_tells_apart_have_operators_of_their_own():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.FractionalMaxPool2d(2, output_ratio=0.6))
    loader = [(torch.randn(40, 3, 10, 10), torch.arange(40) % 2)]
    fit = ClosedFormPooling(alpha=5.0).fit(model, loader, "1", "after")
    fit.replace(model.eval(), on_resize="interpolate")
    for size in (14, 15):
        with torch.no_grad():
            assert model(torch.randn(1, 3, size, size)).shape[2:] == (int(0.6 * size),) * 2
