"""One step: compiled once for all trials of one shape, with the same loss as the plain one."""

import pytest
import torch

from foveapool.data.batches import Feed, load_resident
from foveapool.pooling.baselines import baseline_pooling
from foveapool.training.state import compile_batch_loss, compute_batch_loss

from .toys import toy_data, toy_network


@pytest.fixture
def graphs(monkeypatch):
    """What is handed to the compiler; nothing is compiled."""
    found = []

    def backend(graph, inputs):
        found.append(graph)
        return graph.forward

    original = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **more: original(f, backend=backend, **more))
    compile_batch_loss.cache_clear()
    yield found
    compile_batch_loss.cache_clear()


def test_the_next_trial_of_one_shape_finds_what_the_last_one_compiled(graphs):
    data = toy_data()
    for pooled in (False, True):
        for seed in (0, 1, 2):
            poolings = (
                {2: baseline_pooling("sgd", 8, (8, 8), (4, 4), components=2)} if pooled else None
            )
            network = toy_network(seed=seed, poolings=poolings)
            feed = Feed(load_resident(data, "cpu")[0], 16, seed, data.augmentation)
            feed.start(seed)
            losses = [
                loss_of(network, feed) for loss_of in (compute_batch_loss, compile_batch_loss())
            ]
            torch.testing.assert_close(*losses)
            losses[1].backward()
            assert network.stem.weight.grad is not None
        assert len(graphs) == 1 + pooled
