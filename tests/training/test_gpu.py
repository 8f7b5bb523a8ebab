"""The CUDA graph trains as the plain loop does, follows the schedule and can be resumed."""

import pytest
import torch

from foveapool.data.batches import Feed, load_resident
from foveapool.pooling.baselines import BASELINES, baseline_pooling
from foveapool.pooling.module import LinearPool2d
from foveapool.training.loop import train
from foveapool.training.parallel import Workers
from foveapool.training.state import build_optimizer, make_graph_step, make_plain_step, set_rate

from .toys import same, toy_data, toy_network, toy_recipe

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
GPU = torch.device("cuda")


def eager_losses(network, recipe, seed=0):
    """The losses of an eager loop in bfloat16 on the GPU, by the same step without a graph."""
    data = toy_data()
    network.cuda().to(memory_format=torch.channels_last)
    feed = Feed(load_resident(data, GPU)[0], recipe.batch_size, seed, data.augmentation)
    optimizer = build_optimizer(network, recipe, GPU)
    losses = torch.zeros(feed.steps, device=GPU)
    step = make_plain_step(network, feed, optimizer, losses, Workers())
    means = []
    for epoch in range(recipe.epochs):
        set_rate(optimizer, recipe.rate(epoch))
        feed.start(epoch)
        for _ in range(feed.steps):
            step()
        means.append(float(losses.mean()))
    return means


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("name", ["cnn", "resnet18"])
def test_the_graph_trains_as_the_eager_step_does(name, optimizer):
    # Rate 0 from the second epoch on: a graph that kept its first rate would go on learning.
    recipe = toy_recipe(6, optimizer=optimizer, lr=0.01, milestones=(1,), gamma=0.0)
    result = train(toy_network(name), toy_data(), recipe, device=GPU)
    got = [record.loss for record in result.history]
    assert got == pytest.approx(eager_losses(toy_network(name), recipe), rel=0.05, abs=0.02)


def test_the_gpu_sees_the_batches_that_the_cpu_sees():
    data = toy_data()
    feeds = [
        Feed(load_resident(data, device)[0], 16, 3, data.augmentation) for device in ("cpu", GPU)
    ]
    for feed in feeds:
        feed.start(2, 1)
    (x, y), (gpu_x, gpu_y) = (feed.batch() for feed in feeds)
    torch.testing.assert_close(gpu_x.cpu(), x)
    assert torch.equal(gpu_y.cpu(), y)
    assert gpu_x.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("pooling", ["frozen", *BASELINES])
def test_every_pooling_trains_in_the_graph(pooling):
    shapes = {"in_shape": (8, 8), "out_shape": (4, 4)}
    if pooling == "frozen":
        layer = LinearPool2d(torch.rand(2, 16, 64) / 8, torch.zeros(8), **shapes)
    else:
        layer = baseline_pooling(pooling, 8, components=2, **shapes)
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    network = toy_network("resnet18", poolings={2: layer}, placement="before")
    result = train(network, toy_data(), toy_recipe(6), device=GPU)
    assert result.train_loss < 0.8 * result.history[0].loss
    kept = all(torch.equal(before[name], now.cpu()) for name, now in layer.state_dict().items())
    assert kept == (not list(layer.parameters()))


def test_a_resumed_training_goes_on_in_the_graph(tmp_path):
    class Interrupted(Exception):
        pass

    def interrupt(progress):
        if progress.done == 6:
            raise Interrupted

    given = {"data": toy_data(), "recipe": toy_recipe(3), "device": GPU}
    calm, resumed = toy_network(), toy_network()
    wanted = train(calm, **given)
    more = {"folder": tmp_path, "checkpoint_steps": 2}
    with pytest.raises(Interrupted):
        train(resumed, progress=interrupt, **more, **given)
    resumed = toy_network()
    result = train(resumed, **more, **given)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3
    assert result.train_loss == pytest.approx(wanted.train_loss, rel=0.05, abs=0.02)
    assert result.history[0].loss == pytest.approx(wanted.history[0].loss, rel=1e-2)
    assert same(train_again(tmp_path, given), resumed)


def train_again(folder, given):
    network = toy_network()
    train(network, folder=folder, **given)
    return network


def test_compiled_it_trains_the_same_and_compiles_once():
    from torch._dynamo.utils import counters

    recipe, graphs = toy_recipe(2), []
    for seed in (0, 1):
        plain, compiled = (
            train(toy_network(seed=seed), toy_data(), recipe, device=GPU, compile=compile)
            for compile in (False, True)
        )
        assert compiled.train_loss == pytest.approx(plain.train_loss, rel=0.05, abs=0.02)
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[0] == graphs[1]


def test_a_loss_that_is_no_number_is_found_though_nobody_waited_for_it(tmp_path):
    network = toy_network()
    network.head.weight.data.fill_(1e38)
    with pytest.raises(FloatingPointError, match=r"loss: got .* in epoch 1, step 1 of 4"):
        train(network, toy_data(), toy_recipe(1), device=GPU, folder=tmp_path)
    assert not (tmp_path / "checkpoint.safetensors").exists()


def test_the_average_over_processes_can_be_part_of_a_graph(tmp_path):
    store = f"file://{tmp_path}/store"
    torch.distributed.init_process_group("nccl", init_method=store, rank=0, world_size=1)
    try:
        # One process that believes it has company: the sum is its own, the mean the half.
        workers = Workers(0, 2)
        tensors = [torch.ones(3, 4, 2, 2, device=GPU).to(memory_format=torch.channels_last)]
        tensors.append(torch.arange(5.0, device=GPU))
        step = make_graph_step(lambda: workers.average(tensors), tensors)
        for _ in range(2):
            step()
        assert torch.equal(tensors[0], torch.full((3, 4, 2, 2), 0.25, device=GPU))
        assert torch.equal(tensors[1], torch.arange(5.0, device=GPU) / 4)
    finally:
        torch.distributed.destroy_process_group()
