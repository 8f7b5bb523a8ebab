"""The paper's two networks: their size, their shapes, and poolings in their three layers."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from foveapool.networks import NETWORKS, build_network, initialize_weights
from foveapool.networks.cnn import CNN
from foveapool.networks.resnet import PreActResNet18
from foveapool.networks.sites import PLACEMENTS
from foveapool.pooling.baselines import BASELINES, baseline_pooling
from foveapool.pooling.module import LinearPool2d
from foveapool.surgery.capture import read_inputs

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def pooling_at(site, name="average", components=2):
    return baseline_pooling(name, site.channels, site.in_shape, site.out_shape, components)


def parameters(network):
    return sum(parameter.numel() for parameter in network.parameters())


def test_the_cnn_has_the_size_of_four_convolutions_three_norms_and_a_linear_layer():
    kernels = 9 * (3 * 64 + 64 * 128 + 128 * 256 + 256 * 512) + 64
    norms, head = 2 * (128 + 256 + 512), 512 * 10 + 10
    assert parameters(CNN()) == kernels + norms + head


def test_the_resnet_has_the_size_of_the_implementation_that_the_paper_names():
    # kuangliu/pytorch-cifar, PreActResNet18; its last batch-norm is left out.
    assert parameters(PreActResNet18(final_norm=False)) == 11_171_146
    assert parameters(PreActResNet18()) == 11_171_146 + 2 * 512


def test_the_resnet_computes_what_identity_mappings_prescribes():
    network = build_network("resnet18", seed=0, width=4).eval()
    x = network.stem(IMAGES)
    for stage in (network.layer1, network.layer2, network.layer3, network.layer4):
        for block in stage:
            active = F.relu(block.norm1(x))
            y = block.conv2(F.relu(block.norm2(block.conv1(active))))
            x = y + (x if block.shortcut is None else block.shortcut(active))
    wanted = network.head(F.relu(network.norm(x)).mean((2, 3)))
    torch.testing.assert_close(network(IMAGES), wanted)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("layer", [1, 2, 3])
def test_the_site_tells_what_reaches_the_layer(name, layer):
    network = build_network(name, seed=0, width=4)
    network.head.eval()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    for placement in PLACEMENTS if name == "resnet18" else (None,):
        site = network.site(layer, placement)
        maps = read_inputs(network, IMAGES, [site.module])[site.module]
        assert tuple(maps.shape) == (2, site.channels, *site.in_shape)
        assert not maps.requires_grad
    assert network.training and not network.head.training
    assert all(torch.equal(before[name], now) for name, now in network.state_dict().items())
    assert not any(module._forward_pre_hooks for module in network.modules())


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_maps_of_a_site_are_those_that_a_pooling_there_reads(placement):
    plain = build_network("resnet18", seed=0, width=4)
    pooling = pooling_at(plain.site(2))
    pooled = build_network("resnet18", seed=0, width=4, poolings={2: pooling}, placement=placement)
    seen = []
    pooling.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    pooled.eval()(IMAGES)
    module = plain.site(2, placement).module
    assert torch.equal(read_inputs(plain, IMAGES, [module])[module], seen[0])


@pytest.mark.parametrize("pooling", BASELINES)
def test_any_pooling_goes_into_any_layer_and_learns(pooling):
    for layer in (1, 2, 3):
        site = CNN(width=4).site(layer)
        network = CNN(width=4, poolings={layer: pooling_at(site, pooling)})
        network(IMAGES).sum().backward()
        assert network.get_submodule(site.module) is not None
        trainable = [p for p in network.parameters() if p.requires_grad]
        assert all(p.grad is not None and p.grad.isfinite().all() for p in trainable)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_every_placement_works_in_every_layer_and_in_all_at_once(placement):
    plain = PreActResNet18(width=4)
    for layers in ((1,), (2,), (3,), (1, 2, 3)):
        poolings = {layer: pooling_at(plain.site(layer)) for layer in layers}
        network = PreActResNet18(width=4, poolings=poolings, placement=placement)
        assert network(IMAGES).shape == (2, 10)
        found = [network.get_submodule(name) for name in network.pooling_modules]
        assert found == list(poolings.values())


def test_placements_are_what_they_are_called():
    blocks = {}
    for placement in PLACEMENTS:
        pooling = pooling_at(PreActResNet18(width=4).site(2))
        network = PreActResNet18(width=4, poolings={2: pooling}, placement=placement)
        blocks[placement] = initialize_weights(network, 0).layer3[0].eval()
    maps = torch.randn(1, 8, 16, 16)

    def mean(x):
        return torch.cat([F.avg_pool2d(x, 2)] * 2, 1)

    def behind(block, x):
        return block.conv2(F.relu(block.norm2(x)))

    def compare(placement, wanted):
        torch.testing.assert_close(blocks[placement](maps), wanted(blocks[placement]))

    active = F.relu(blocks["both"].norm1(maps))
    compare("both", lambda b: behind(b, mean(active)) + mean(active))
    compare("main", lambda b: behind(b, mean(active)) + b.shortcut(active))
    compare("shortcut", lambda b: behind(b, b.conv1(active)) + mean(active))
    compare("before", lambda b: behind(b, b.conv1(F.relu(b.norm1(mean(maps))))) + mean(maps))


def test_before_a_block_one_component_is_enough():
    site = PreActResNet18(width=4).site(3)
    pooling = pooling_at(site, components=1)
    network = PreActResNet18(width=4, poolings={3: pooling}, placement="before")
    assert network(IMAGES).shape == (2, 10)


@pytest.mark.parametrize("components", [1, 2, 4])
def test_a_cnn_takes_as_many_channels_as_its_poolings_give(components):
    first = pooling_at(CNN(width=4).site(1), components=components)
    network = CNN(width=4, poolings={1: first})
    assert network.site(2).channels == 4 * components
    second = pooling_at(network.site(2), components=components)
    both = CNN(width=4, poolings={1: first, 2: second})
    assert both.site(3).channels == 4 * components**2
    assert both(IMAGES).shape == (2, 10)


def test_layers_that_networks_share_start_from_the_same_numbers():
    plain = build_network("resnet18", seed=3, width=4).state_dict()
    for placement in PLACEMENTS:
        pooling = LinearPool2d.random((16, 16), (8, 8), components=2)
        before = pooling.weight.detach().clone()
        network = build_network(
            "resnet18", seed=3, width=4, poolings={2: pooling}, placement=placement
        )
        for name, tensor in network.state_dict().items():
            if name in plain and tensor.shape == plain[name].shape:
                assert torch.equal(tensor, plain[name]), name
        assert torch.equal(pooling.weight, before)
    other = build_network("resnet18", seed=4, width=4).state_dict()
    assert not torch.equal(other["layer4.1.conv2.weight"], plain["layer4.1.conv2.weight"])


def test_a_pooling_keeps_the_numbers_it_came_with():
    pooling = pooling_at(CNN(width=4).site(2), "lip")
    build_network("cnn", seed=0, width=4, poolings={2: pooling})
    assert pooling.project.weight.abs().max() == 0


def test_building_leaves_the_random_numbers_of_others_alone():
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    build_network("cnn", seed=1, width=4)
    assert torch.equal(torch.rand(3), wanted)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: build_network("cn", seed=0), r"network: got 'cn', wanted one of cnn, res.*'cnn'"),
        (lambda: build_network("cnn", seed=0, widht=4), r"cnn: got the option 'widht'.*'width'"),
        (lambda: CNN(classes=0), r"classes: got 0, wanted 1"),
        (lambda: CNN(in_shape=(4, 4)), r"in_shape: got \(4, 4\), wanted.*at least 8"),
        (lambda: CNN(poolings={4: nn.MaxPool2d(2)}), r"layer: got 4, wanted 1, 2 or 3"),
        (lambda: CNN(width=4, poolings={2: nn.MaxPool2d(4)}), r"poolings\[2\]: got maps of shape "
         r"\(8, 4, 4\) from \(8, 16, 16\), wanted \(16, 8, 8\); give it 2 components"),
        (lambda: PreActResNet18(width=4, poolings={2: nn.MaxPool2d(2)}),
         r"poolings\[2\]: got maps of shape \(8, 8, 8\).*wanted \(16, 8, 8\)"),
        (lambda: CNN(width=4, poolings={1: pooling_at(CNN(width=4).site(2))}),
         r"poolings\[1\]: does not take maps of shape \(4, 32, 32\).*it says"),
        (lambda: CNN(poolings={1: torch.relu}), r"poolings\[1\]: got .*, wanted an nn.Module"),
        (lambda: CNN().site(1, "both"), r"placement: got 'both', wanted none"),
        (lambda: PreActResNet18(placement="after"), r"placement: got 'after', wanted one of both"),
        (lambda: PreActResNet18(width=4, poolings={1: nn.MaxPool2d(4)}, placement="before"),
         r"poolings\[1\]: got maps of shape \(4, 8, 8\).*wanted \(8, 16, 16\)"),
    ],
)  # fmt: skip
def test_what_cannot_be_built_is_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_asking_whether_a_pooling_fits_does_not_change_it():
    pooling = nn.Sequential(pooling_at(CNN(width=4).site(1)), nn.BatchNorm2d(8)).train()
    CNN(width=4, poolings={1: pooling})
    assert pooling.training and int(pooling[1].num_batches_tracked) == 0
