"""A stride moved behind norm and activation: the same function, and a layer for a pooling."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import foveapool as fp


def make_network(stride=2, size=8, between=()):
    """Convolution, norm, activation, convolution; norms with statistics as training leaves them."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 6, 3, stride, 1),
        nn.BatchNorm2d(6),
        *between,
        nn.ReLU(),
        nn.Conv2d(6, 4, 1),
    )
    with torch.no_grad():
        for _ in range(3):
            network.train()(torch.randn(16, 3, size, size))
    return network.eval()


class Block(nn.Module):
    """A residual block whose activation is one module for both of its uses, as torchvision's is."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, 2, 1)
        self.bn1 = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1)
        self.shortcut = nn.Conv2d(3, 4, 1, 2)

    def forward(self, x):
        main = self.conv2(self.relu(self.bn1(self.conv1(x))))
        return self.relu(main + self.shortcut(x))


class Excited(nn.Module):
    """Scales its maps by a number that depends on all positions."""

    def forward(self, x):
        return x * torch.sigmoid(x.mean((2, 3), keepdim=True))


def images(size=8, count=24):
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("stride", "size"), [(2, 8), (2, 7), (3, 8), ((2, 1), 8), (2, 2)])
def test_the_network_stays_the_same_function_with_the_same_state(stride, size):
    network = make_network(stride, size)
    x, names = images(size), list(network.state_dict())
    wanted = network(x)
    assert fp.move_stride(network, x[:1], "0", behind="2") == "2.subsample"
    assert list(network.state_dict()) == names
    torch.testing.assert_close(network(x), wanted, rtol=1e-5, atol=1e-6)
    assert network[1](network[0](x)).shape[2:] == (size, size)


def test_a_pooling_is_fitted_on_what_the_activation_gives_at_full_resolution():
    network, x, labels = make_network(), images(), torch.arange(24) % 3
    dense = copy.deepcopy(network)
    dense[0].stride = (1, 1)
    with torch.no_grad():
        maps = dense[2](dense[1](dense[0](x)))
    scatter = fp.compute_scatter(maps, labels, window=2)
    wanted = fp.solve_pooling(scatter, (4, 4), alpha=25.0, components=1, window=2, center="first")
    name = fp.move_stride(network, x[:1], "0", behind="2")
    fit = fp.ClosedFormPooling(25.0).fit(network, [(x, labels)], layer=name, mode="after")
    torch.testing.assert_close(fit.operator_.weight, wanted.weight, rtol=0, atol=1e-5)
    fit.replace(network)
    pool = fit.module()
    with torch.no_grad():
        torch.testing.assert_close(network[2](network[1](network[0](x))), pool(maps))


def test_the_layer_is_listed_where_the_places_are_dropped():
    network = make_network()
    fp.move_stride(network, images()[:1], "0", behind="2")
    (found,) = fp.downsampling_layers(network, images()[:1])
    assert (found.name, found.in_shape, found.out_shape) == ("2.subsample", (8, 8), (4, 4))
    assert (found.in_channels, found.out_channels) == (6, 6)


def test_an_activation_used_twice_is_refused_and_the_next_layer_taken_instead():
    torch.manual_seed(0)
    block, x = Block().eval(), images()
    wanted = block(x)
    with pytest.raises(ValueError, match=r"relu: is used 2 times .* by before="):
        fp.move_stride(block, x[:1], "conv1", behind="relu")
    assert fp.move_stride(block, x[:1], "conv1", before="conv2") == "conv2.subsample"
    torch.testing.assert_close(block(x), wanted, rtol=1e-5, atol=1e-6)
    labels = torch.arange(24) % 3
    fit = fp.ClosedFormPooling().fit(block, [(x, labels)], layer="conv2.subsample", mode="after")
    fit.replace(block)
    with torch.no_grad():
        maps = F.relu(block.bn1(block.conv1(x)))
        pooled = fit.module()(maps)
    seen = []
    block.conv2.register_forward_hook(lambda module, given, output: seen.append(given[0]))
    block(x)
    torch.testing.assert_close(seen[0], pooled)


@pytest.mark.parametrize(
    ("between", "behind"),
    [
        ([nn.Conv2d(6, 6, 3, padding=1)], "3"),
        ([Excited()], "3"),
        ([], "3"),
    ],
    ids=["a convolution between", "a mean over the map between", "the convolution behind"],
)
def test_what_is_not_done_place_by_place_is_refused_and_nothing_changed(between, behind):
    network = make_network(between=between)
    if not between:
        network[3] = nn.Conv2d(6, 4, 3, padding=1)
    x = images()
    wanted, modules = network(x), list(network.named_modules())
    with pytest.raises(ValueError, match=r"cannot be moved behind 3: .* place by place"):
        fp.move_stride(network, x[:4], "0", behind=behind)
    assert list(network.named_modules()) == modules and network[0].stride == (2, 2)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in network.modules())
    assert torch.equal(network(x), wanted)


def test_a_layer_that_pads_by_its_stride_is_refused():
    class Same(nn.Conv2d):
        def forward(self, x):
            over = 1 if self.stride == (2, 2) else 2
            return super().forward(F.pad(x, (over - 1, 1, over - 1, 1)))

    network = nn.Sequential(Same(3, 4, 3, 2), nn.ReLU())
    with pytest.raises(ValueError, match="cannot be moved"):
        fp.move_stride(network, images()[:1], "0", behind="1")
    assert network[0].stride == (2, 2)


def test_restore_and_restore_stride_give_the_network_back_bit_for_bit():
    network, x = make_network(), images()
    wanted, modules = network(x), list(network.named_modules())
    name = fp.move_stride(network, x[:1], "0", behind="2")
    fit = fp.ClosedFormPooling().fit(network, [(x, torch.arange(24) % 3)], name, "after")
    fit.replace(network)
    with pytest.raises(ValueError, match=r"2\.subsample: .* call restore\(model\) first"):
        fp.restore_stride(network)
    fp.restore(network)
    assert fp.restore_stride(network) is network
    assert torch.equal(network(x), wanted) and list(network.named_modules()) == modules
    assert network[0].stride == (2, 2) and not network[2]._forward_hooks
    with pytest.warns(UserWarning, match="strides are its own"):
        fp.restore_stride(network)


def test_a_copy_and_a_pickle_can_be_restored_by_themselves():
    network, x = make_network(), images()
    fp.move_stride(network, x[:1], "0", before="3")
    wanted = network(x)
    file = io.BytesIO()
    torch.save(network, file)
    file.seek(0)
    for other in (copy.deepcopy(network), torch.load(file, weights_only=False)):
        assert torch.equal(other(x), wanted)
        fp.restore_stride(other)
        assert other[0].stride == (2, 2) and network[0].stride == (1, 1)
        torch.testing.assert_close(other(x), wanted, rtol=1e-5, atol=1e-6)


def test_it_is_exported_and_trained_like_any_other():
    network, x = make_network(), images()
    fp.move_stride(network, x[:1], "0", behind="2")
    fit = fp.ClosedFormPooling().fit(network, [(x, torch.arange(24) % 3)], "2.subsample", "after")
    fit.replace(network)
    exported = torch.export.export(network, (x,)).module()
    torch.testing.assert_close(exported(x), network(x))
    network.train()(x).square().mean().backward()
    assert all(p.grad is not None for p in network.parameters() if p.requires_grad)


def test_an_adapter_goes_onto_a_network_whose_stride_was_moved(tmp_path):
    network, x = make_network(), images()
    fresh = copy.deepcopy(network)
    fp.move_stride(network, x[:1], "0", behind="2")
    fit = fp.ClosedFormPooling().fit(network, [(x, torch.arange(24) % 3)], "2.subsample", "after")
    fit.replace(network)
    fp.save(network, tmp_path / "adapter")
    with pytest.raises(ValueError, match=r"2\.subsample"):
        fp.load(copy.deepcopy(fresh), tmp_path / "adapter")
    fp.move_stride(fresh, x[:1], "0", behind="2")
    fp.load(fresh, tmp_path / "adapter")
    assert torch.equal(fresh.eval()(x), network.eval()(x))


@pytest.mark.parametrize(
    ("layer", "where", "message"),
    [
        ("0", {}, "got behind=None and before=None, wanted one"),
        ("0", {"behind": "2", "before": "3"}, "wanted one of them"),
        ("conv", {"behind": "2"}, "wanted the name of a layer"),
        ("0", {"behind": "relu"}, "wanted the name of a layer"),
        ("3", {"behind": "2"}, "without a stride of 2 or more"),
        ("2", {"behind": "2"}, "without a stride of 2 or more"),
    ],
)
def test_what_cannot_be_moved_is_said(layer, where, message):
    with pytest.raises(ValueError, match=message):
        fp.move_stride(make_network(), images()[:1], layer, **where)


def test_two_strides_cannot_be_moved_to_one_module():
    network = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 4, 1, 2), nn.ReLU())
    fp.move_stride(network, images()[:1], "0", behind="2")
    with pytest.raises(ValueError, match=r"restore_stride\(model\) undoes"):
        fp.move_stride(network, images()[:1], "1", behind="2")
