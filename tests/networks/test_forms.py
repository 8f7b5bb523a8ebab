"""Forms of a pooling in a network: each is the function that its formula says, at every layer."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from foveapool.networks import build_network
from foveapool.networks.cnn import CNN
from foveapool.networks.resnet import PreActResNet18
from foveapool.networks.sites import FORMS, PoolingChoice, halve_shape, list_paths
from foveapool.pooling.baselines import baseline_pooling
from foveapool.pooling.module import LinearPool2d

from ..pooling.shifts import as_mixing, shifts

SIZE = (20, 28)  # the third layer's maps have an odd side
IMAGES = torch.randn(3, 3, *SIZE, generator=torch.Generator().manual_seed(0))
AFTER = ("after", "after-activation")
PLACES = [("cnn", None), ("resnet18", "both"), ("resnet18", "main"), ("resnet18", "shortcut")]
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
EVERYWHERE = pytest.mark.parametrize(
    ("name", "placement", "layer"), [(*place, layer) for place in PLACES for layer in (1, 2, 3)]
)


def network(name, *choices):
    """A network of seed 0 whose norms have seen something: as if it had been trained."""
    found = build_network(name, seed=0, width=4, in_shape=SIZE, poolings=choices).eval()
    for key, module in found.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            numbers = torch.Generator().manual_seed(len(key) + ord(key[-1]))
            module.running_mean.normal_(generator=numbers)
            module.running_var.uniform_(0.5, 2, generator=numbers)
    return found


def subsampling(site):
    """Every second pixel: each row of the matrix is a single 1."""
    return LinearPool2d.from_kernel(torch.ones(1, 1, 1), site.in_shape, 2, 0)


def rival_at(name):
    """A maker of the rival of that name for a site, with as many components as it wants there."""

    def make(site):
        return baseline_pooling(name, site.channels, site.in_shape, site.out_shape, site.components)

    return make


# The mean does not pass through a ReLU unchanged, nor the maximum through a convolution: between
# them they tell in which order a network takes its steps. Edges may cut 2 x 2 pixels short.
BLOCKS = {
    "average": lambda maps: F.avg_pool2d(maps, 2, ceil_mode=True),
    "max": lambda maps: F.max_pool2d(maps, 2, ceil_mode=True),
}


def site_of(plain, layer, placement, form, path="main"):
    more = {} if placement is None else {"path": path}
    return plain.site(layer, placement, form, **more)


def choice(plain, layer, form, placement, make):
    """The choice with a pooling of its own in each path that the form and the placement give."""
    own = [
        make(site_of(plain, layer, placement, form, path)) for path in list_paths(form, placement)
    ]
    return PoolingChoice(layer, own[0], form, placement, *own[1:])


def cnn_by_hand(plain, chosen, form, pool):
    """The CNN with a pooling behind the convolution of a layer, from the weights alone."""
    maps = F.relu(plain.stem(IMAGES))
    for layer in (1, 2, 3):
        kernel, norm = plain.get_submodule(f"down{layer}").weight, getattr(plain, f"norm{layer}")
        maps = F.conv2d(maps, kernel, stride=1 if layer == chosen else 2, padding=1)
        if layer == chosen:
            maps = F.relu(norm(pool(maps))) if form == "after" else pool(F.relu(norm(maps)))
        else:
            maps = F.relu(norm(maps))
    return plain.head(maps.mean((2, 3)))


def block_by_hand(block, maps, form, placement, pool):
    """A block that halves its maps by a pooling in its paths."""
    active = F.relu(block.norm1(maps))
    pooled = placement in ("main", "both")
    main = F.conv2d(active, block.conv1.weight, stride=1 if pooled else 2, padding=1)
    if pooled and form == "after":
        main = pool(main)
    main = F.relu(block.norm2(main))
    if pooled and form == "after-activation":
        main = pool(main)
    short = pool(active) if placement in ("shortcut", "both") else active[..., ::2, ::2]
    return block.conv2(main) + F.conv2d(short, block.shortcut.weight)


@EVERYWHERE
@pytest.mark.parametrize("form", AFTER)
def test_behind_the_convolution_subsampling_is_its_stride(name, placement, layer, form):
    plain = network(name)
    pooled = network(name, choice(plain, layer, form, placement, subsampling))
    assert len(pooled.pooling_modules) == (2 if placement == "both" else 1)
    torch.testing.assert_close(pooled(IMAGES), plain(IMAGES), **CLOSE)


@pytest.mark.parametrize("layer", [1, 2, 3])
@pytest.mark.parametrize("form", AFTER)
@pytest.mark.parametrize("pool", BLOCKS)
def test_in_a_cnn_it_is_convolution_then_pooling(layer, form, pool):
    plain = network("cnn")
    pooled = network("cnn", choice(plain, layer, form, None, rival_at(pool)))
    wanted = cnn_by_hand(plain, layer, form, BLOCKS[pool])
    assert not torch.allclose(wanted, plain(IMAGES), **CLOSE)
    torch.testing.assert_close(pooled(IMAGES), wanted, **CLOSE)


@pytest.mark.parametrize("layer", [1, 2, 3])
@pytest.mark.parametrize(
    ("placement", "form"),
    [(place, form) for place in ("both", "main", "shortcut") for form in AFTER]
    + [("shortcut", "mix")],
)
@pytest.mark.parametrize("pool", BLOCKS)
def test_in_a_block_each_path_is_pooled_and_the_shortcut_before_its_convolution(
    layer, placement, form, pool
):
    plain = network("resnet18")
    pooled = network("resnet18", choice(plain, layer, form, placement, rival_at(pool)))
    numbers = torch.Generator().manual_seed(layer)
    block = f"layer{layer + 1}.0"
    channels, size = 4 * 2 ** (layer - 1), halve_shape(SIZE, layer - 1)
    maps = torch.randn(2, channels, *size, generator=numbers)
    wanted = block_by_hand(plain.get_submodule(block), maps, form, placement, BLOCKS[pool])
    torch.testing.assert_close(pooled.get_submodule(block)(maps), wanted, **CLOSE)


def mixed(plain, layer, placement):
    """The choice of form `mix` that is the network's own strided convolution, to be filled."""
    site = site_of(plain, layer, placement, "mix")
    replaced = plain.get_submodule(site.module)
    first = shifts(replaced, site.in_shape)
    if placement == "shortcut":
        first = subsampling(site)
    others = [subsampling(site)] if placement == "both" else []
    return PoolingChoice(layer, first, "mix", placement, *others), replaced


@EVERYWHERE
def test_nine_shifts_mixed_by_the_kernel_are_the_strided_convolution(name, placement, layer):
    plain = network(name)
    own, replaced = mixed(plain, layer, placement)
    pooled = network(name, own)
    if placement != "shortcut":
        there = pooled.get_submodule(pooled.pooling_modules[0].removesuffix(".pool"))
        assert not torch.allclose(pooled(IMAGES), plain(IMAGES), **CLOSE)
        with torch.no_grad():
            there.mixing.weight.copy_(as_mixing(replaced.weight))
    torch.testing.assert_close(pooled(IMAGES), plain(IMAGES), **CLOSE)


@pytest.mark.parametrize("layer", [1, 2, 3])
@pytest.mark.parametrize(("name", "placement"), PLACES[:3])
def test_mixing_before_the_pooling_gives_what_mixing_behind_it_gives(name, placement, layer):
    class MixedFirst(nn.Module):
        """Each component has its own 1 x 1 convolution, before its rows pool the map."""

        def __init__(self, layer):
            super().__init__()
            self.rows, self.shape = layer.pool.weight, layer.pool.out_shape
            self.kernels = layer.mixing.weight

        def forward(self, maps):
            each = torch.einsum("okc,bchw->bkohw", self.kernels, maps).flatten(3)
            return torch.einsum("kmn,bkon->bom", self.rows, each).unflatten(2, self.shape)

    def make(site):
        return LinearPool2d.random(site.in_shape, site.out_shape, site.components)

    torch.manual_seed(0)
    pooled = network(name, choice(network(name), layer, "mix", placement, make))
    wanted = pooled(IMAGES)
    where = pooled.pooling_modules[0].removesuffix(".pool")
    pooled.set_submodule(where, MixedFirst(pooled.get_submodule(where)))
    torch.testing.assert_close(pooled(IMAGES), wanted, **CLOSE)


def trained_parameters(network):
    return sum(each.numel() for each in network.parameters() if each.requires_grad)


@pytest.mark.parametrize("layer", [1, 2, 3])
@pytest.mark.parametrize(("name", "placement"), PLACES)
@pytest.mark.parametrize("form", ["mix", *AFTER])
def test_forms_that_keep_the_convolution_train_as_many_numbers(name, placement, layer, form):
    def fixed(site):
        made = LinearPool2d.random(site.in_shape, site.out_shape, site.components)
        return made.requires_grad_(False)

    plain = network(name)
    pooled = network(name, choice(plain, layer, form, placement, fixed))
    assert trained_parameters(pooled) == trained_parameters(plain)


@pytest.mark.parametrize("name", ["cnn", "resnet18"])
def test_layers_may_differ_in_pooling_form_and_placement(name):
    placements = {1: "both", 2: "main", 3: "shortcut"} if name == "resnet18" else {}
    plain = network(name)

    for forms in (("after-activation", "mix", "after"), ("mix", "after", "replace")):
        made = {1: rival_at("blur"), 2: rival_at("sgd"), 3: rival_at("sgd")}
        choices = [
            choice(plain, layer, form, placements.get(layer), made[layer])
            for layer, form in zip((1, 2, 3), forms, strict=True)
        ]
        pooled = network(name, *choices).train()
        found = [pooled.get_submodule(each) for each in pooled.pooling_modules]
        assert found == [m for c in choices for m in (c.pooling, c.shortcut) if m is not None]
        pooled(IMAGES).square().sum().backward()
        grads = [each.grad for each in pooled.parameters()]
        assert all(grad is not None and grad.isfinite().all() for grad in grads)
        assert all(grad.abs().max() > 0 for grad in (grads[0], choices[1].pooling.weight.grad))


def test_a_shortcut_keeps_the_phase_that_the_main_path_chose():
    plain = network("resnet18")
    main = rival_at("aps")(site_of(plain, 2, "both", "after"))
    short = main.follower(site_of(plain, 2, "both", "after", "shortcut").channels)
    pooled = network("resnet18", PoolingChoice(2, main, "after", "both", short))
    told = {}
    main.register_forward_pre_hook(lambda module, given: told.update(main=given))
    short.register_forward_pre_hook(lambda module, given: told.update(short=given))
    pooled(IMAGES)
    assert torch.equal(told["main"][1], told["short"][1])
    assert torch.equal(told["short"][1], main.choose(told["main"][0]))


def test_a_site_wants_one_component_behind_a_convolution_and_nine_before_a_mixing():
    plain = CNN(width=4)
    found = {form: plain.site(2, form=form) for form in FORMS}
    assert {form: site.components for form, site in found.items()} == {
        "replace": 2,
        "mix": 9,
        "after": 1,
        "after-activation": 1,
    }
    assert {form: site.channels for form, site in found.items()} == {
        "replace": 8,
        "mix": 8,
        "after": 16,
        "after-activation": 16,
    }


HALVE = nn.MaxPool2d(2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PoolingChoice(1, HALVE, "befor"), r"form: got 'befor', wanted one of replace, mi"),
        (lambda: PoolingChoice(1, HALVE, "afterr"), r"did you mean 'after'"),
        (lambda: PoolingChoice(4, HALVE), r"layer: got 4, wanted 1, 2 or 3"),
        (lambda: CNN(width=4, poolings=[PoolingChoice(1, HALVE, "after")] * 2),
         r"poolings: got two choices for layer 1, wanted one a layer at most"),
        (lambda: CNN(width=4, poolings=[PoolingChoice(1, HALVE, "after", "main")]),
         r"placement: got 'main', wanted none: a pooling of the CNN has one place"),
        (lambda: CNN(width=4, poolings=[PoolingChoice(1, HALVE, "after", shortcut=HALVE)]),
         r"poolings\[1\]: got a pooling for a shortcut, wanted none: a CNN has none"),
        (lambda: CNN(width=4, poolings=[PoolingChoice(1, nn.MaxPool2d(4), "after")]),
         r"poolings\[1\]: got maps of shape \(8, 8, 8\) from \(8, 32, 32\), wanted \(8, 16, 16\)"),
        (lambda: PreActResNet18(width=4, poolings=[PoolingChoice(3, HALVE, "mix", "before")]),
         r"placement: got 'before' in form 'mix', wanted both, main or shortcut.*form 'replace'"),
        (lambda: PreActResNet18(width=4, poolings=[PoolingChoice(3, HALVE, "after", "before")]),
         r"placement: got 'before' in form 'after', wanted both, main or shortcut"),
        (lambda: PreActResNet18(width=4, poolings=[PoolingChoice(3, HALVE, placement="shortcuts")]),
         r"placement: got 'shortcuts', wanted one of both, before, main, shortcut"),
        (lambda: PreActResNet18(width=4, poolings=[PoolingChoice(3, HALVE, "after", "both")]),
         r"poolings\[3\]: got no pooling for the shortcut in form 'after', placement 'both'"),
        (lambda: PreActResNet18(width=4, poolings=[
            PoolingChoice(3, HALVE, "after", "main", HALVE)]),
         r"poolings\[3\]: got a pooling for the shortcut in form 'after', placement 'main'"),
        (lambda: PreActResNet18(width=4, poolings=[
            PoolingChoice(3, HALVE, "mix", "both", nn.MaxPool2d(4))]),
         r"poolings\[3\]: got maps of shape \(16, 2, 2\) from \(16, 8, 8\), wanted \(16, 4, 4\)"),
    ],
)  # fmt: skip
def test_a_choice_that_cannot_stand_there_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_wrong_choice_is_known_before_a_large_network_is_built(monkeypatch):
    wrong = [PoolingChoice(3, HALVE, "mix", "before")]
    monkeypatch.setattr(nn.Conv2d, "__init__", None)
    with pytest.raises(ValueError, match="placement: got 'before' in form 'mix'"):
        PreActResNet18(poolings=wrong)
