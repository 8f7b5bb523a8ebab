"""Several processes train one network: as one would alone, and only the first one writes."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import torch

from foveapool.training.parallel import Workers

TWO_PROCESSES = """
import os, sys
import torch
from torch import nn
from toys import same, toy_data, toy_network, toy_recipe
from foveapool.training.loop import train
from foveapool.training.parallel import Workers, join_torchrun

torch.optim.SGD([nn.Parameter(torch.zeros(1))])
child = os.fork()
rank = 0 if child else 1
os.environ |= {"WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_RANK": str(rank)}

def plain_network(seed):
    # Batch-norm would see half a batch in each process.
    torch.manual_seed(seed)
    convolution = nn.Conv2d(3, 8, 3, stride=2)
    return nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), nn.Linear(8 * 49, 4))

with join_torchrun(torch.device("cpu")) as device:
    assert Workers.current() == Workers(rank, 2)
    # What the others start from does not matter: all follow the first.
    network = plain_network(rank)
    seen = []
    more = {"folder": "run", "progress": seen.append, "checkpoint_steps": 2}
    result = train(network, toy_data(), toy_recipe(3), seed=1, device=device, **more)
    assert bool(seen) == (rank == 0)
    normed = toy_network()
    train(normed, toy_data(), toy_recipe(1), device=device)
    again = plain_network(rank)
    found = train(again, toy_data(), toy_recipe(3), seed=1, device=device, **more)
    assert (found.test_error, found.train_loss) == (result.test_error, result.train_loss)
    assert same(again, network)
torch.save([network.state_dict(), normed.state_dict(), result.test_error], f"rank{rank}")
if rank == 1:
    os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0
alone = plain_network(0)
wanted = train(alone, toy_data(), toy_recipe(3), seed=1, device="cpu")
for ours, theirs in zip(network.parameters(), alone.parameters()):
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
assert abs(wanted.test_error - result.test_error) < 5
assert abs(wanted.train_loss - result.train_loss) < 1e-4
"""


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return str(server.getsockname()[1])


def test_two_processes_train_what_one_would_and_the_first_one_writes(tmp_path):
    environment = {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": free_port(),
    }
    done = subprocess.run(
        [sys.executable, "-c", TWO_PROCESSES],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    first, second = (torch.load(tmp_path / name) for name in ("rank0", "rank1"))
    for ours, theirs in zip(first[:2], second[:2], strict=True):
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert first[2] == second[2]
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 3


def test_a_process_alone_leads_and_keeps_its_numbers():
    workers, tensor = Workers.current(), torch.ones(3)
    workers.average([tensor])
    workers.follow([tensor])
    assert workers == Workers(0, 1) and workers.leads
    assert torch.equal(workers.total(tensor), torch.ones(3))
