"""Code that folds a convolution into its norm must not take a pooling for one, nor drop it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.ao.quantization import fuse_modules, fuse_modules_qat
from torch.nn.utils.fusion import fuse_conv_bn_eval

from foveapool import ClosedFormPooling, replace, restore

from .toys import halving, loader, pictures

modes = pytest.mark.parametrize("mode", ["replace", "mix", "after"])
REFUSED = r"PooledLayer: got asked for .*folds a convolution.*fold first and then replace, or call"


class ConvNorm(nn.Sequential):
    """A convolution and its norm, which can be made one: as RepViT and LeViT have them."""

    def __init__(self, channels: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, outputs, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs)

    @torch.no_grad()
    def fuse(self) -> nn.Conv2d:
        conv, bn = self._modules.values()
        scale = bn.weight / (bn.running_var + bn.eps) ** 0.5
        weight = conv.weight * scale[:, None, None, None]
        folded = nn.Conv2d(
            weight.size(1), weight.size(0), weight.shape[2:], conv.stride, conv.padding
        )
        folded.weight.data.copy_(weight)
        folded.bias.data.copy_(bn.bias - bn.running_mean * scale)
        return folded


class Branches(nn.Module):
    """Branches that become one convolution, as MobileOne's and FastViT's do."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList(ConvNorm(3, 6, size, 2) for size in (3, 1))
        self.folded: nn.Conv2d | None = None

    def forward(self, x: Tensor) -> Tensor:
        return sum(each(x) for each in self.branches) if self.folded is None else self.folded(x)

    def reparameterize(self) -> None:
        kernels, biases = zip(*map(self._fuse, self.branches), strict=True)
        own = self.branches[0].conv
        self.folded = nn.Conv2d(
            own.in_channels, own.out_channels, own.kernel_size, own.stride, own.padding
        )
        self.folded.weight.data, self.folded.bias.data = sum(kernels), sum(biases)
        del self.branches

    def _fuse(self, branch: ConvNorm) -> tuple[Tensor, Tensor]:
        kernel, bn = branch.conv.weight, branch.bn
        if branch.conv.kernel_size[0] == 1:
            kernel = nn.functional.pad(kernel, [1, 1, 1, 1])
        scale = bn.weight / (bn.running_var + bn.eps).sqrt()
        return kernel * scale.reshape(-1, 1, 1, 1), bn.bias - bn.running_mean * scale


def reparameterize_model(model: nn.Module) -> nn.Module:
    """As timm has it: whatever says that it can fold itself is asked to, in a copy."""
    model = copy.deepcopy(model)

    def fold(module: nn.Module) -> None:
        for name, child in module.named_children():
            if hasattr(child, "fuse"):
                setattr(module, name, child.fuse())
            elif hasattr(child, "reparameterize"):
                child.reparameterize()
            fold(child)

    fold(model)
    return model


NETWORKS = {
    "branches": (lambda: nn.Sequential(Branches()), ["0.branches.0.conv", "0.branches.1.conv"]),
    "one branch": (lambda: nn.Sequential(Branches()), ["0.branches.1.conv"]),
    "norm": (lambda: nn.Sequential(ConvNorm(3, 6, 3, 2)), ["0.conv"]),
}


@modes
@pytest.mark.parametrize(("make", "names"), NETWORKS.values(), ids=NETWORKS)
def test_a_pooling_is_not_folded_away(make, names, mode):
    torch.manual_seed(0)
    model = make().eval()
    wanted = model(pictures())
    torch.testing.assert_close(reparameterize_model(model)(pictures()), wanted)
    ClosedFormPooling().fit(model, loader(), names, mode).replace(model)
    pooled = model(pictures())
    with pytest.raises(ValueError, match=REFUSED):
        reparameterize_model(model)
    assert torch.equal(model(pictures()), pooled)
    restore(model)
    torch.testing.assert_close(reparameterize_model(model)(pictures()), wanted)


@modes
@pytest.mark.parametrize("behind", [["norm"], ["norm", "relu"], ["relu"]])
@pytest.mark.parametrize("fuse", [fuse_modules, fuse_modules_qat])
def test_torch_does_not_fuse_a_pooling(mode, behind, fuse):
    model = nn.Sequential()
    parts = {"norm": nn.BatchNorm2d(6), "relu": nn.ReLU()}
    for name, module in {"conv": nn.Conv2d(3, 6, 3, 2, 1), **parts}.items():
        model.add_module(name, module)
    model.train(fuse is fuse_modules_qat)
    replace(model, {"conv": halving()}, mode=mode)
    with pytest.raises(ValueError, match=REFUSED):
        fuse(model, [["conv", *behind]])
    with pytest.raises(ValueError, match=REFUSED):
        fuse_conv_bn_eval(model.eval().conv, model.norm)
    restore(model)
    assert isinstance(fuse_conv_bn_eval(model.conv, model.norm), nn.Conv2d)


@modes
def test_what_asks_for_type_and_device_goes_on_working(mode):
    class Casting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 6, 3, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            weight = self.conv.weight
            x = x.to(weight.dtype).to(weight.device) if weight.is_floating_point() else x
            x = x.to(device=weight.data.device, dtype=weight.data.dtype)
            return self.conv(x)

    model = Casting().double()
    replace(model, {"conv": halving()}, mode=mode)
    pooled = model(pictures())
    assert pooled.dtype == torch.float64
    weight = model.conv.weight
    assert pictures().to(weight).dtype == pictures().type_as(weight).dtype == torch.float64
    assert not (weight.is_cuda or weight.is_meta) and weight.element_size() == 8
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(pictures()), pooled)
    assert model.half().conv.weight.dtype == torch.float16


@modes
def test_whatever_reads_or_sets_numbers_is_refused(mode):
    model = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1))
    replace(model, {"0": halving()}, mode=mode)
    layer, ones = model[0], torch.ones(6, 3, 3, 3)
    for use in (
        lambda: layer.weight.shape,
        lambda: layer.weight.data.normal_(),
        lambda: layer.weight[0],
        lambda: layer.weight * ones,
        lambda: ones * layer.weight,
        lambda: len(layer.weight),
        lambda: torch.flip(layer.weight, (0,)),
        lambda: layer.weight.to(torch.float64),
        lambda: nn.init.zeros_(layer.weight),
        lambda: setattr(layer, "weight", ones),
        lambda: setattr(layer, "weight", nn.Parameter(ones)),
        lambda: setattr(layer, "bias", nn.Parameter(ones[:, 0, 0, 0])),
    ):
        with pytest.raises(ValueError, match=REFUSED):
            use()


def test_a_pooling_has_no_weight_where_the_layer_had_none():
    model = nn.Sequential(nn.MaxPool2d(2))
    replace(model, {"0": halving()})
    assert not hasattr(model[0], "weight")
