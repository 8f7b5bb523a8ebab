"""Maps from inside of a network, which is left as its owner had it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from foveapool import ClosedFormPooling, LinearPool2d, capture, replace
from foveapool.surgery.capture import read_inputs
from foveapool.surgery.geometry import Unstrided

from .toys import MAIN, POOL, SHORTCUT, anatomy, loader, toy
from .zoo import NETWORKS, images, network


def read_by(model: nn.Module, inputs: Tensor) -> dict[str, Tensor]:
    """What the layers are given, seen by hooks of our own; with gradients none is overwritten."""
    seen = {}

    def hook(module: nn.Module, given: tuple[Tensor]) -> None:
        seen[module] = given[0].detach()

    layers = {name: model.get_submodule(name) for name in (MAIN, SHORTCUT, POOL)}
    handles = [layer.register_forward_pre_hook(hook) for layer in layers.values()]
    model(inputs)
    for handle in handles:
        handle.remove()
    return {name: seen[layer] for name, layer in layers.items()}


def assert_same_maps(found: dict[str, Tensor], wanted: dict[str, Tensor], exact: bool = True):
    for name, maps in found.items():
        torch.testing.assert_close(maps, wanted[name], **({"rtol": 0, "atol": 0} if exact else {}))


def test_the_maps_are_what_the_layers_read_though_they_are_written_into_later():
    model = toy()
    found = capture(model, loader(), [POOL, MAIN, SHORTCUT])
    for (inputs, labels), (maps, batch) in zip(loader(), found, strict=True):
        assert list(maps) == [MAIN, SHORTCUT, POOL]
        assert_same_maps(maps, read_by(model, inputs))
        assert float(maps[MAIN].abs().max()) > 0
        assert torch.equal(batch.inputs, inputs) and torch.equal(batch.labels, labels)
        assert not any(each.requires_grad for each in maps.values())


@pytest.mark.parametrize(("layer", "names"), [("main", [MAIN]), (r"block\..*", [MAIN, SHORTCUT])])
def test_layers_are_named_by_an_end_or_a_pattern_too(layer, names):
    maps, _ = next(capture(toy(), loader(), layer))
    assert list(maps) == names


def test_in_mode_after_the_maps_are_the_layers_output_at_stride_1():
    model = toy()
    read = read_by(model, loader()[0][0])
    maps, _ = next(capture(model, loader(), [MAIN, POOL], mode="after"))
    for name, shape in ((MAIN, (10, 8, 8, 8)), (POOL, (10, 8, 4, 4))):
        layer = model.get_submodule(name)
        wanted = layer(read[name]).detach()
        assert maps[name].shape == shape
        torch.testing.assert_close(maps[name][:, :, ::2, ::2], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["replace", "after"])
def test_hooks_of_the_layer_itself_act_as_they_will_when_it_is_replaced(mode):
    """In mode `after` they stay at work, in mode `replace` they leave with the layer."""
    model, inputs = toy(), loader()[0][0]
    plain = read_by(model, inputs)[MAIN]
    model.block.main.register_forward_pre_hook(lambda _, given: (given[0] + 1,))
    maps, _ = next(capture(model, loader(), MAIN, mode=mode))
    if mode == "replace":
        assert torch.equal(maps[MAIN], plain)
    else:
        stage = Unstrided(model.block.main, (8, 8), (4, 4))
        torch.testing.assert_close(maps[MAIN], stage(plain))


def test_the_forward_pass_ends_at_the_last_layer_asked_for():
    model, ran = toy(), []
    for name, module in model.named_modules():
        if not list(module.children()):
            module.register_forward_hook(lambda *_, name=name: ran.append(name))
    next(capture(model, loader(), MAIN))
    first = ran.index(MAIN)  # the dry run that looks for the layers goes through to the end
    assert ran[first + 1 :] == [SHORTCUT, "relu", POOL, "head", "stem", "norm"]


def test_nothing_is_left_behind():
    model = toy().train()
    model.block.shortcut.eval()
    model.stem.register_forward_hook(lambda *_: None)
    before = anatomy(model)
    for mode in ("replace", "after"):
        for _ in capture(model, loader(), [MAIN, POOL], mode=mode):
            # Between two batches, too.
            assert anatomy(model) == before and torch.is_grad_enabled()
    assert anatomy(model) == before


@pytest.mark.parametrize("mode", ["replace", "after"])
def test_nothing_is_left_behind_by_an_error_in_the_network(mode):
    class Failing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if len(x) == 5:
                raise KeyError("the last batch")
            return x

    model = toy().train()
    model.norm = Failing()
    before = anatomy(model)
    with pytest.raises(KeyError, match="the last batch"):
        list(capture(model, loader(), MAIN, mode=mode))
    assert anatomy(model) == before and torch.is_grad_enabled()


def test_nothing_is_left_behind_by_an_error_at_stride_1():
    model = toy().train()

    def refuse(_: nn.Module, given: tuple[Tensor]) -> None:
        if given[0].shape[0] == 5 and not model.training:
            raise KeyError("the last batch")

    model.block.main.register_forward_pre_hook(refuse)
    before = anatomy(model)
    with pytest.raises(KeyError, match="the last batch"):
        list(capture(model, loader(), MAIN, mode="after"))
    assert anatomy(model) == before


def test_a_network_that_catches_errors_does_not_catch_the_end():
    class Careful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.caught = toy(), []

        def forward(self, x: Tensor) -> Tensor:
            try:
                return self.inner(x)
            except Exception as error:
                self.caught.append(error)
                raise

    model = Careful()
    next(capture(model, loader(), "main"))
    assert model.caught == []


def test_networks_that_watch_themselves_are_left_as_they_were():
    model = network(NETWORKS["resnet"])
    model.config.output_hidden_states = True
    before = anatomy(model)
    names = [name for name, module in model.named_modules() if "forward" in vars(module)]
    next(capture(model, [images(4)], "pooler"))
    assert anatomy(model) == before
    assert names == [name for name, module in model.named_modules() if "forward" in vars(module)]
    assert len(model(images(2)[0]).hidden_states) == 3


@pytest.fixture
def one_process(tmp_path) -> Iterator[None]:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("kind", ["compiled", "compiled in place", "distributed", "both"])
def test_wrapped_networks_give_the_same_maps(kind, one_process):
    torch.compiler.reset()
    model, inputs = toy(), loader()[0][0]
    wanted = read_by(model, inputs)
    wrapped = DistributedDataParallel(model) if kind in ("distributed", "both") else model
    if kind in ("compiled", "both"):
        wrapped = torch.compile(wrapped, backend="eager")
    if kind == "compiled in place":
        model.compile(backend="eager")
    with torch.no_grad():
        # Compiled code that is there already must not run past the hooks.
        output = wrapped(inputs)
    for mode in ("replace", "after"):
        maps, _ = next(capture(wrapped, loader(), [MAIN, SHORTCUT, POOL], mode=mode))
        if mode == "replace":
            assert_same_maps(maps, wanted)
    with torch.no_grad():
        assert torch.equal(wrapped(inputs), output)


def test_under_autocast_the_maps_are_of_its_type():
    maps, _ = next(capture(toy(), loader(), POOL, autocast=torch.bfloat16))
    wanted, _ = next(capture(toy(), loader(), POOL))
    assert maps[POOL].dtype == torch.bfloat16
    torch.testing.assert_close(maps[POOL].float(), wanted[POOL], rtol=0.05, atol=0.05)
    after, _ = next(capture(toy(), loader(), MAIN, mode="after", autocast=torch.bfloat16))
    assert after[MAIN].dtype == torch.bfloat16


def test_a_layer_that_is_passed_twice_shows_what_it_reads_first():
    pool = nn.MaxPool2d(2)
    model = nn.Sequential(nn.ReLU(), pool, nn.Sigmoid(), pool)
    maps, _ = next(capture(model, loader(), "3"))
    assert list(maps) == ["1"]
    assert torch.equal(maps["1"], loader()[0][0].relu())


def test_a_layer_behind_a_replaced_one_can_be_read():
    model = toy()
    replace(model, {MAIN: LinearPool2d.average((8, 8), (4, 4), 2)})
    assert torch.equal(next(capture(model, loader(), POOL))[0][POOL], read_pool(model))
    with pytest.raises(ValueError, match=r"layer: got 'main', replaced already; call restore"):
        next(capture(model, loader(), "main"))
    assert list(next(capture(model, loader(), r"block\..*"))[0]) == [SHORTCUT]


def read_pool(model: nn.Module) -> Tensor:
    return read_inputs(model, loader()[0][0], [POOL])[POOL]


def test_a_layer_that_a_later_batch_does_not_reach_is_named():
    class Fickle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pool = nn.MaxPool2d(2)

        def forward(self, x: Tensor) -> Tensor:
            return self.pool(x) if len(x) != 5 else x

    with pytest.raises(ValueError, match=r"layer: \['pool'\] were not reached"):
        list(capture(Fickle(), loader(), POOL))


def test_layers_that_do_not_shrink_and_unknown_modes_are_refused():
    model = toy()
    before = anatomy(model)
    with pytest.raises(
        ValueError, match=r"got 'stem' \(stem\), which does not shrink .*wanted one"
    ):
        next(capture(model, loader(), "stem"))
    with pytest.raises(ValueError, match="mode: got 'before'"):
        next(capture(model, loader(), MAIN, mode="before"))
    with pytest.raises(ValueError, match="layer: got no name"):
        next(capture(model, loader(), []))
    assert anatomy(model) == before


def test_maps_that_are_written_into_in_a_later_batch_only_are_the_layers_all_the_same():
    class Moody(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.MaxPool2d(2), nn.MaxPool2d(2)

        def forward(self, x: Tensor) -> Tensor:
            x = x + 0
            first = self.first(x)
            if len(x) == 5:
                x.zero_()
            return self.second(first + x[:, :, ::2, ::2])

    for (inputs, _), (maps, _) in zip(
        loader(), capture(Moody(), loader(), ["first", "second"]), strict=True
    ):
        assert torch.equal(maps["first"], inputs)
        wanted = nn.functional.max_pool2d(inputs, 2)
        wanted = wanted if len(inputs) == 5 else wanted + inputs[:, :, ::2, ::2]
        assert torch.equal(maps["second"], wanted)


class InPlace(nn.Module):
    """Normalizes what it is given where it lies, as some networks do."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 6, 3, 2, 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.down(images.sub_(1.0).div_(2.0))


def test_a_network_that_writes_into_its_input_does_not_change_the_batch():
    (images, labels), *others = loader()
    before = images.clone()
    ((maps, batch),) = capture(InPlace(), [(images, labels)], "down")
    assert torch.equal(maps["down"], (before - 1.0) / 2.0)
    assert torch.equal(images, before) and torch.equal(batch.inputs, before)
    batches = [(images, labels), *others]
    once, again = (ClosedFormPooling().fit(InPlace(), batches, "down") for _ in range(2))
    assert torch.equal(once.operator_.weight, again.operator_.weight)
