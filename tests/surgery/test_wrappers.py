"""Networks inside of wrappers: which are changed through them, and what is said of the others."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

import foveapool as fp

from .toys import MAIN, POOL, SHORTCUT, anatomy, loader, pictures, toy

WRAPPERS = {
    "averaged": AveragedModel,
    "compiled": lambda model: torch.compile(model, backend="eager"),
    "on several devices": nn.DataParallel,
    "averaged and compiled": lambda model: torch.compile(AveragedModel(model), backend="eager"),
    "averaged of compiled": lambda model: AveragedModel(torch.compile(model, backend="eager")),
}
wrappers = pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)


@pytest.fixture
def distributed(tmp_path) -> Iterator[nn.Module]:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1
    )
    yield DistributedDataParallel(toy())
    torch.distributed.destroy_process_group()


@wrappers
def test_a_network_in_a_wrapper_is_fitted_changed_saved_and_restored_as_without(wrap, tmp_path):
    torch.compiler.reset()
    plain, wrapped = toy(), wrap(toy()).eval()
    device = next(wrapped.parameters()).device
    plain.to(device)
    images = pictures().to(device)
    before = wrapped(images)
    names = [each.name for each in fp.downsampling_layers(wrapped, images)]
    assert names == [MAIN, SHORTCUT, POOL]
    for model, folder in ((plain, "plain"), (wrapped, "wrapped")):
        fp.ClosedFormPooling().fit(model, loader(), names).replace(model)
        fp.save(model, tmp_path / folder)
    torch.testing.assert_close(wrapped(images), plain(images))
    files = [(tmp_path / folder / "adapter_config.json") for folder in ("plain", "wrapped")]
    assert files[0].read_text() == files[1].read_text()
    assert fp.restore(wrapped) == names
    assert torch.equal(wrapped(images), before)
    fp.load(wrapped, tmp_path / "plain")
    torch.testing.assert_close(wrapped(images), plain(images))


@pytest.mark.parametrize("compiled", [False, True])
def test_a_wrapper_that_does_not_follow_changes_is_refused(distributed, compiled):
    pool = fp.LinearPool2d.average((8, 8), (4, 4))
    fp.replace(distributed.module, {MAIN: pool})
    model = torch.compile(distributed, backend="eager") if compiled else distributed
    before = anatomy(distributed)
    message = r"got a DistributedDataParallel, .*change model\.module, then wrap it anew"
    for change in (lambda: fp.replace(model, {SHORTCUT: pool}), lambda: fp.restore(model)):
        with pytest.raises(ValueError, match=message):
            change()
    assert anatomy(distributed) == before
    assert fp.restore(distributed.module) == [MAIN]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "made", [torch.jit.script, lambda m: torch.jit.trace(m, pictures())], ids=["script", "trace"]
)
def test_scripted_and_traced_networks_are_refused_by_name(made, tmp_path):
    model = made(nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1)))
    for use in (
        lambda: fp.downsampling_layers(model, pictures()),
        lambda: fp.ClosedFormPooling().fit(model, loader(), "0"),
        lambda: fp.replace(model, {"0": fp.LinearPool2d.average((8, 8), (4, 4))}),
        lambda: fp.save(model, tmp_path / "adapter"),
    ):
        with pytest.raises(
            ValueError, match=r"scripted or traced.* the nn.Module it was made from"
        ):
            use()


def test_a_layer_in_a_wrapper_of_its_own_that_does_not_follow_is_refused():
    model = nn.Sequential(torch.compile(nn.Conv2d(3, 6, 3, 2, 1), backend="eager"), nn.ReLU())
    fit = fp.ClosedFormPooling().fit(model, loader(), "0._orig_mod")
    before = anatomy(model)
    with pytest.raises(ValueError, match=r"got a layer in a torch\.compile of its own"):
        fit.replace(model)
    assert anatomy(model) == before


class Listing(nn.Module):
    """Calls its layers from a list, of which torch does not know."""

    def __init__(self, kind: type) -> None:
        super().__init__()
        self.stem, self.down = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 8, 3, 2, 1)
        self.order = kind([self.stem, self.down])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.order:
            x = layer(x)
        return x


def test_a_layer_that_stands_in_a_plain_list_too_is_warned_of():
    pools = {"down": fp.LinearPool2d.average((8, 8), (4, 4))}
    with pytest.warns(UserWarning, match=r"stands in its `order`, a list.*nn\.ModuleList"):
        fp.replace(Listing(list), pools)
    with pytest.warns(UserWarning, match=r"stands in its `order`, a list"):
        fp.replace(Listing(lambda layers: [(layer, nn.ReLU()) for layer in layers]), pools)
    endless = []
    endless.append(endless)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fp.replace(Listing(nn.ModuleList), pools)
        fp.replace(Listing(lambda layers: endless), pools)
