"""LinearPool2d with a window: the same as the whole matrix, from the weights inside it alone."""

from __future__ import annotations

import io

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import foveapool as fp
from foveapool import _memory
from foveapool.pooling import grid, windowed
from foveapool.pooling.functional import linear_pool
from foveapool.pooling.grid import CENTERS, windows
from foveapool.pooling.module import LinearPool2d

FORMATS = [torch.contiguous_format, torch.channels_last]
ways = pytest.mark.parametrize("way", ["tiles", "whole"])
tiles = pytest.mark.parametrize("way", ["tiles"])
formats = pytest.mark.parametrize("memory_format", FORMATS, ids=["channels_first", "channels_last"])
trainable_or_not = pytest.mark.parametrize("trainable", [True, False])


@pytest.fixture
def go(way, monkeypatch):
    """Pools by tiles, or by the whole matrix, whatever is cheaper."""
    torch.manual_seed(0)
    torch.compiler.reset()
    monkeypatch.setattr(windowed, "GAIN", {"tiles": 0, "whole": 1e9}[way])
    return way


def random_pool(
    in_shape=(9, 8), out_shape=(4, 4), window=1, components=2, center="paper", **more
) -> LinearPool2d:
    count = windows(in_shape, out_shape, window, center).shape[1]
    weight = torch.randn(components, out_shape[0] * out_shape[1], count)
    more = {"mean": torch.randn(3)} | more
    shapes = {"in_shape": in_shape, "out_shape": out_shape}
    return LinearPool2d(weight, **shapes, window=window, center=center, **more).eval()


def random_maps(pool: LinearPool2d, batch=2, memory_format=FORMATS[0]) -> Tensor:
    return torch.randn(batch, 3, *pool.in_shape).contiguous(memory_format=memory_format)


def whole(pool: LinearPool2d, maps: Tensor) -> Tensor:
    return linear_pool(maps, pool.dense_weight(), pool.out_shape, pool.mean)


@ways
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    sizes=st.one_of(
        st.tuples(st.tuples(st.integers(1, 40), st.integers(1, 40))),
        st.tuples(*[st.tuples(st.integers(1, 6), st.integers(1, 6))] * 3),
    ),
    window=st.integers(0, 3),
    components=st.sampled_from([1, 2, 9]),
    center=st.sampled_from(CENTERS),
    channels_last=st.booleans(),
)
def test_lines_and_volumes_are_pooled_alike(go, sizes, window, components, center, channels_last):
    in_shape, out_shape = (tuple(f(pair) for pair in sizes) for f in (max, min))
    index = windows(in_shape, out_shape, window, center)
    pool = fp.LinearPool.of(
        torch.randn(components, *index.shape),
        torch.randn(3),
        in_shape=in_shape,
        out_shape=out_shape,
        window=window,
        center=center,
        trainable=True,
    )
    maps = torch.randn(2, 3, *in_shape)
    if channels_last:
        maps = maps.movedim(1, -1).contiguous().movedim(-1, 1)
    maps.requires_grad_()
    found, wanted = pool(maps), whole(pool, maps)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    weights = torch.randn_like(wanted)
    gradients = [
        torch.autograd.grad((each * weights).sum(), (maps, pool.weight)) for each in (found, wanted)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-3)


@ways
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    sizes=st.tuples(*[st.tuples(st.integers(1, 13), st.integers(1, 13))] * 2),
    window=st.integers(0, 5),
    components=st.sampled_from([1, 2, 9, 20]),
    center=st.sampled_from(CENTERS),
    batch=st.integers(0, 3),
    channels=st.sampled_from([1, 3, 40]),
    memory_format=st.sampled_from(FORMATS),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    fitted=st.booleans(),
    trainable=st.booleans(),
)
def test_a_window_pools_as_the_whole_matrix_does(
    go, sizes, window, components, center, batch, channels, memory_format, dtype, fitted, trainable
):
    in_shape, out_shape = (tuple(pick(pair) for pair in sizes) for pick in (max, min))
    pool = random_pool(
        *(in_shape, out_shape, window, components, center),
        mean=torch.randn(channels) if fitted else None,
        trainable=trainable,
        dtype=dtype,
    )
    maps = torch.randn(batch, channels, *in_shape, dtype=dtype)
    maps = maps.contiguous(memory_format=memory_format).requires_grad_()
    pooled, wanted = pool(maps), whole(pool, maps)
    kept = FORMATS[0] if maps.is_contiguous() else memory_format
    if batch and wanted.is_contiguous(memory_format=kept):
        assert pooled.is_contiguous(memory_format=kept)
    near = {torch.float32: 1e-4, torch.float64: 1e-11}[dtype]
    torch.testing.assert_close(pooled, wanted, rtol=near, atol=near)
    inputs = [maps, pool.weight] if trainable else [maps]
    grad = torch.randn_like(pooled)
    ours, theirs = (torch.autograd.grad(each, inputs, grad) for each in (pooled, wanted))
    torch.testing.assert_close(ours, theirs, rtol=10 * near, atol=10 * near)


@ways
@formats
def test_only_the_weights_of_the_window_are_there_and_train(go, memory_format):
    pool = random_pool(trainable=True)
    assert [name for name, _ in pool.named_parameters()] == ["weight"]
    assert pool.weight.shape == (2, 16, 9)
    assert set(pool.state_dict()) == {"weight", "mean"}
    before = pool.dense_weight().detach()
    pool(random_maps(pool, 2, memory_format)).square().sum().backward()
    with torch.no_grad():
        pool.weight -= 0.1 * pool.weight.grad
    assert bool((pool.dense_weight()[before == 0] == 0).all())


@ways
@formats
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_pools_in_its_type_and_keeps_the_level_of_constant_maps(go, memory_format, dtype):
    pool = random_pool(mean=torch.tensor([1.0, 2.0, -4.0]))
    maps = random_maps(pool, 2, memory_format)
    with torch.autocast("cpu", dtype):
        pooled, wanted = pool(maps), whole(pool, maps)
        level = pool(pool.mean[:, None, None].expand(1, 3, 9, 8))
    assert pooled.dtype == dtype
    torch.testing.assert_close(pooled, wanted, rtol=0.05, atol=0.2)
    kept = pool.mean.repeat(2)[:, None, None].expand_as(level[0])
    torch.testing.assert_close(level[0].float(), kept, rtol=0.05, atol=0.1)


@tiles
@formats
def test_second_derivatives_are_those_of_plain_operations(go, memory_format):
    pool = random_pool((5, 4), (2, 2), trainable=True, dtype=torch.float64)
    maps = random_maps(pool, 1, memory_format).double().requires_grad_()

    def pooled(maps: Tensor, weight: Tensor) -> Tensor:
        return torch.func.functional_call(pool, {"weight": weight}, (maps,))

    assert torch.autograd.gradcheck(pooled, (maps, pool.weight))
    assert torch.autograd.gradgradcheck(pooled, (maps, pool.weight))


@ways
def test_transforms_of_torch_func_see_plain_operations(go):
    pool = random_pool()
    maps = torch.randn(4, 2, 3, 9, 8)
    wanted = torch.stack([pool(each) for each in maps])
    torch.testing.assert_close(torch.func.vmap(pool)(maps), wanted, rtol=1e-4, atol=1e-5)
    found, moved = torch.func.jvp(pool, (maps[0],), (maps[1],))
    level = pool(torch.zeros_like(maps[0]))
    torch.testing.assert_close(found, wanted[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(moved, wanted[1] - level, rtol=1e-4, atol=1e-5)


@tiles
@formats
def test_compiling_needs_no_graph_break_and_keeps_values_and_gradients(go, memory_format):
    pool, results = random_pool(trainable=True), []
    for module in (pool, torch.compile(pool, fullgraph=True, backend="aot_eager")):
        torch.manual_seed(1)
        maps = random_maps(pool, 4, memory_format).requires_grad_()
        pool.weight.grad = None
        module(maps).square().sum().backward()
        results.append([maps.grad, pool.weight.grad])
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)


@tiles
@trainable_or_not
@formats
def test_an_exported_program_pools_batches_of_any_size(go, memory_format, trainable):
    pool = random_pool(trainable=trainable)
    sizes = {"x": {0: torch.export.Dim("batch")}}
    maps = random_maps(pool, 4, memory_format)
    program = torch.export.export(pool, (maps,), dynamic_shapes=sizes)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    exported = torch.export.load(file).module()
    for batch in (1, 9):
        maps = random_maps(pool, batch, memory_format)
        torch.testing.assert_close(exported(maps), pool(maps), rtol=1e-4, atol=1e-5)


@tiles
@pytest.mark.filterwarnings("ignore")  # of the exporters
@pytest.mark.parametrize("dynamo", [True, False])
def test_an_onnx_file_pools_alike(go, dynamo, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    pool, path = random_pool(), tmp_path / "pool.onnx"
    maps = random_maps(pool)
    torch.onnx.export(pool, (maps,), path, dynamo=dynamo, input_names=["x"], verbose=False)
    (pooled,) = onnxruntime.InferenceSession(path).run(None, {"x": maps.numpy()})
    torch.testing.assert_close(torch.from_numpy(pooled), pool(maps), rtol=1e-4, atol=1e-5)


@ways
def test_a_symbolic_trace_and_the_meta_device_take_it(go):
    pool = random_pool()
    maps = random_maps(pool)
    traced = torch.fx.symbolic_trace(nn.Sequential(pool))
    torch.testing.assert_close(traced(maps), pool(maps))
    assert pool.to("meta")(maps.to("meta")).shape == (2, 6, 4, 4)


def test_the_whole_matrix_is_taken_and_cut_from_weights_and_states_alike():
    torch.manual_seed(0)
    pool, other = random_pool(), random_pool()
    shapes = {"in_shape": (9, 8), "out_shape": (4, 4)}
    again = LinearPool2d(pool.dense_weight(), pool.mean, **shapes, window=1)
    assert torch.equal(again.weight, pool.weight)
    dense = LinearPool2d(pool.dense_weight(), pool.mean, **shapes)
    nn.Sequential(other).load_state_dict(nn.Sequential(dense).state_dict())
    assert torch.equal(other.weight, pool.weight)
    with pytest.raises(ValueError, match=r"weight: got .*, wanted \(components, 16, 72\) or \(c"):
        LinearPool2d(torch.zeros(1, 16, 25), **shapes, window=1)
    with pytest.raises(ValueError, match="window"):
        LinearPool2d(torch.zeros(1, 16, 25), **shapes, window=-1)


def test_maps_of_another_size_get_the_window_that_holds_what_was_carried_there():
    torch.manual_seed(0)
    pool = random_pool((12, 12), (6, 6), trainable=True)
    carried = pool.resized((14, 15))
    assert carried.window is not None and carried.trainable
    torch.testing.assert_close(
        carried.dense_weight(), pool.resized_weight((14, 15), carried.out_shape)
    )


@pytest.mark.parametrize("mode", ["replace", "mix", "after"])
def test_a_fit_with_a_window_is_replaced_saved_and_loaded(mode, tmp_path):
    torch.manual_seed(0)
    networks = [
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, 2, 1)) for _ in range(2)
    ]
    networks[1].load_state_dict(networks[0].state_dict())
    images = torch.randn(40, 3, 20, 20)
    fit = fp.ClosedFormPooling(alpha=25.0, window=1)
    fit.fit(networks[0], [(images, torch.arange(40) % 4)], layer="1", mode=mode)
    fit.replace(networks[0])
    fp.save(networks[0], tmp_path)
    fp.load(networks[1], tmp_path)
    pools = [network[1].pool for network in networks]
    assert all(pool.window == 1 and pool.weight.shape[2] == 9 for pool in pools)
    assert pools[0].center == pools[1].center == ("first" if mode == "after" else "paper")
    torch.testing.assert_close(networks[1](images[:2]), networks[0](images[:2]))


def test_a_matrix_that_the_memory_has_no_room_for_is_not_written_out(monkeypatch):
    index = grid.windows((64, 64), (32, 32), 1)
    rows = torch.ones(9, *index.shape)
    assert grid.write_out_checked(rows[:1], index, 4096).shape == (1, 1024, 4096)
    monkeypatch.setattr(_memory, "get_free_memory", lambda device: 10**8)
    monkeypatch.setattr(grid, "_SMALL", 10**7)
    told = r"the whole matrix, \(9, 1024, 4096\), needs 0\.2 GB .*; .*`rows` of an operator"
    with pytest.raises(ValueError, match=told):
        grid.write_out_checked(rows, index, 4096)
    pool = LinearPool2d(rows, in_shape=(64, 64), out_shape=(32, 32), window=1)
    for write in (pool.dense_weight, lambda: pool.resized((65, 65))):
        with pytest.raises(ValueError, match="needs"):
            write()
