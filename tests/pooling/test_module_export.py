"""LinearPool2d as a layer like any other: copied, saved, compiled, exported, sent elsewhere."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_model, save_model
from torch import Tensor, nn

from foveapool import BASELINES, baseline_pooling, replace
from foveapool.pooling.functional import linear_pool
from foveapool.pooling.mixing import ChannelMixing, MixingPool
from foveapool.pooling.module import LinearPool2d

IN_SHAPE, OUT_SHAPE = (4, 6), (2, 3)
FORMATS = [torch.contiguous_format, torch.channels_last]

formats = pytest.mark.parametrize("memory_format", FORMATS, ids=["channels_first", "channels_last"])
trainable_or_not = pytest.mark.parametrize("trainable", [True, False])


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.manual_seed(0)
    torch.compiler.reset()


def random_pool(trainable: bool = False, fitted: bool = True) -> LinearPool2d:
    weight = torch.randn(2, 6, 24)
    mean = torch.randn(3) if fitted else None
    return LinearPool2d(
        weight, mean, in_shape=IN_SHAPE, out_shape=OUT_SHAPE, trainable=trainable
    ).eval()


def random_maps(batch: int, memory_format: torch.memory_format = FORMATS[0]) -> Tensor:
    return torch.randn(batch, 3, *IN_SHAPE).contiguous(memory_format=memory_format)


# Copying and saving


@trainable_or_not
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda pool: pickle.loads(pickle.dumps(pool))])
def test_a_copy_pools_alike_and_shares_nothing(copied, trainable):
    pool, maps = random_pool(trainable), random_maps(2)
    wanted = pool(maps).detach()
    twin = copied(pool)
    assert twin.trainable == trainable and repr(twin) == repr(pool)
    with torch.no_grad():
        pool.weight.zero_()
        pool.mean.zero_()
    assert torch.equal(twin(maps), wanted)


@pytest.mark.parametrize("saved", [True, False], ids=["trained", "fixed"])
@pytest.mark.parametrize("loaded", [True, False], ids=["into-trainable", "into-fixed"])
def test_a_state_loads_strictly_into_a_layer_of_the_same_shapes(saved, loaded, tmp_path):
    pool, other, maps = random_pool(saved), random_pool(loaded), random_maps(2)
    assert not torch.equal(other(maps), pool(maps))
    torch.save(pool.state_dict(), tmp_path / "pool.pt")
    other.load_state_dict(torch.load(tmp_path / "pool.pt", weights_only=True), strict=True)
    assert torch.equal(other(maps), pool(maps))
    assert other.trainable == loaded


@trainable_or_not
def test_a_network_with_the_layer_goes_through_a_safetensors_file(trainable, tmp_path):
    networks = [nn.Sequential(nn.Conv2d(3, 3, 1), random_pool(trainable)) for _ in range(2)]
    save_model(networks[0], str(tmp_path / "network.safetensors"))
    load_model(networks[1], tmp_path / "network.safetensors", strict=True)
    maps = random_maps(2)
    assert torch.equal(networks[1](maps), networks[0](maps))


def test_a_state_with_a_mean_is_not_taken_by_a_layer_without_one_nor_the_other_way():
    with_mean, without = random_pool(), random_pool(fitted=False)
    with pytest.raises(RuntimeError, match=r"Unexpected key.*mean"):
        without.load_state_dict(with_mean.state_dict())
    with pytest.raises(RuntimeError, match=r"Missing key.*mean"):
        with_mean.load_state_dict(without.state_dict())


def test_a_state_of_another_size_is_not_taken():
    small = LinearPool2d.average((4, 4), (2, 2))
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        small.load_state_dict(LinearPool2d.average((6, 6), (3, 3)).state_dict())


# Elsewhere


@formats
@trainable_or_not
def test_on_the_meta_device_shapes_and_memory_format_are_known_without_values(
    trainable, memory_format
):
    pool = random_pool(trainable).to("meta")
    assert pool.weight.is_meta and pool.mean.is_meta
    pooled = pool(random_maps(5, memory_format).to("meta"))
    assert pooled.is_meta and pooled.shape == (5, 6, *OUT_SHAPE)
    assert pooled.is_contiguous(memory_format=memory_format)


def test_a_network_moved_to_channels_last_still_computes_the_same():
    network = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), random_pool()).eval()
    maps = random_maps(2)
    wanted = network(maps)
    network = network.to(memory_format=torch.channels_last)
    pooled = network(maps.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(pooled, wanted, rtol=1e-5, atol=1e-5)
    assert pooled.is_contiguous(memory_format=torch.channels_last)


# Compiling


@formats
@trainable_or_not
@pytest.mark.parametrize("fitted", [True, False])
def test_compiling_needs_no_graph_break_and_keeps_values_and_gradients(
    memory_format, trainable, fitted
):
    pool = random_pool(trainable, fitted)
    compiled = torch.compile(pool, fullgraph=True, backend="aot_eager")
    results = []
    for module in (pool, compiled):
        torch.manual_seed(1)
        maps = random_maps(4, memory_format).requires_grad_()
        pool.weight.grad = None
        pooled = module(maps)
        pooled.square().sum().backward()
        assert pooled.is_contiguous(memory_format=memory_format)
        results.append([pooled.detach(), maps.grad, pool.weight.grad])
    assert (results[0][2] is not None) == trainable
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_compiling_under_autocast_needs_no_graph_break(dtype):
    pool, maps = random_pool(), random_maps(4)
    compiled = torch.compile(pool, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", dtype):
        wanted, pooled = pool(maps), compiled(maps)
    assert pooled.dtype == dtype
    torch.testing.assert_close(pooled, wanted)


@formats
def test_one_compilation_serves_every_batch_size(memory_format):
    pool, compilations = random_pool(), []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]):
        compilations.append(graph)
        return graph.forward

    compiled = torch.compile(pool, fullgraph=True, dynamic=True, backend=backend)
    for batch in (5, 7, 2):
        maps = random_maps(batch, memory_format)
        torch.testing.assert_close(compiled(maps), pool(maps))
    assert len(compilations) == 1


@formats
def test_the_function_and_its_checks_break_no_graph(memory_format):
    pool, maps = random_pool(), random_maps(4, memory_format)
    compiled = torch.compile(linear_pool, fullgraph=True, backend="aot_eager")
    found = compiled(maps, pool.weight, OUT_SHAPE, pool.mean)
    torch.testing.assert_close(found, pool(maps), rtol=1e-5, atol=1e-5)


def test_a_map_of_another_size_is_refused_when_compiled_too():
    compiled = torch.compile(random_pool(), backend="aot_eager")
    with pytest.raises(ValueError, match="resized"):
        compiled(torch.zeros(2, 3, 8, 8))


def test_the_default_compiler_gives_the_same_values():
    pool, maps = random_pool(), random_maps(4)
    with torch.no_grad():
        pooled = torch.compile(pool, fullgraph=True)(maps)
    torch.testing.assert_close(pooled, pool(maps), rtol=1e-5, atol=1e-5)


# Exporting


@formats
@trainable_or_not
def test_an_exported_program_pools_batches_of_any_size_after_being_saved(memory_format, trainable):
    pool = random_pool(trainable)
    sizes = {"x": {0: torch.export.Dim("batch")}}
    program = torch.export.export(pool, (random_maps(4, memory_format),), dynamic_shapes=sizes)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    exported = torch.export.load(file).module()
    for batch in (1, 4, 9):
        maps = random_maps(batch, memory_format)
        torch.testing.assert_close(exported(maps), pool(maps))


@formats
def test_an_onnx_file_pools_batches_of_any_size(memory_format, tmp_path: Path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    pool, path = random_pool(), tmp_path / "pool.onnx"
    torch.onnx.export(
        pool,
        (random_maps(4, memory_format),),
        path,
        dynamo=True,
        dynamic_shapes={"x": {0: torch.export.Dim("batch")}},
        verbose=False,
    )
    session = onnxruntime.InferenceSession(path)
    for batch in (1, 7):
        maps = random_maps(batch)
        (pooled,) = session.run(None, {"x": maps.numpy()})
        torch.testing.assert_close(torch.from_numpy(pooled), pool(maps), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore")  # the older exporter says at length that it is
def test_the_older_exporter_writes_onnx_too(tmp_path: Path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pool, path, maps = random_pool(), tmp_path / "pool.onnx", random_maps(4)
    torch.onnx.export(pool, (maps,), path, dynamo=False, input_names=["x"])
    (pooled,) = onnxruntime.InferenceSession(path).run(None, {"x": maps.numpy()})
    torch.testing.assert_close(torch.from_numpy(pooled), pool(maps), rtol=1e-5, atol=1e-5)


SCRIPTED = {
    "linear": lambda: random_pool(),
    "mixing": lambda: MixingPool(random_pool(), ChannelMixing(3, 4, 2)),
    "deep": lambda: nn.Sequential(nn.ReLU(), nn.Sequential(random_pool())),
    **{name: lambda name=name: baseline_pooling(name, 3, (8, 8), (4, 4)) for name in BASELINES},
}


@pytest.mark.parametrize("name", SCRIPTED)
def test_torchscript_is_refused_by_name(name):
    with pytest.raises(ValueError, match=r"got a \w+, which TorchScript .* torch\.export\.export"):
        torch.jit.script(SCRIPTED[name]())


def test_a_replaced_network_is_not_scripted_but_exported_and_traced():
    model = nn.Sequential(nn.Conv2d(3, 6, 2, 2)).eval()
    replace(model, {"0": random_pool()})
    maps = random_maps(2)
    with pytest.raises(ValueError, match=r"got a PooledLayer, which TorchScript"):
        torch.jit.script(model)
    wanted = model(maps)
    assert torch.equal(torch.export.export(model, (maps,)).module()(maps), wanted)
    assert torch.equal(torch.jit.trace(model, maps)(maps), wanted)
