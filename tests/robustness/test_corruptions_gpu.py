"""The same corruptions on a GPU as on the CPU; skipped where there is none."""

import pytest
import torch

from foveapool.robustness.corruptions import CORRUPTIONS, corrupt

from .perturbation_oracles import pictures

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore:frost. no pictures of ice"),
]

IMAGES = torch.from_numpy(pictures(300))
FIXED = [name for name, corruption in CORRUPTIONS.items() if not corruption.random]
RANDOM = [name for name, corruption in CORRUPTIONS.items() if corruption.random]


@pytest.mark.parametrize("severity", [1, 5])
@pytest.mark.parametrize("name", FIXED)
def test_what_is_not_random_has_the_same_pixels(name, severity):
    cpu, gpu = (corrupt(IMAGES.to(device), name, severity).cpu() for device in ("cpu", "cuda"))
    difference = (cpu.int() - gpu.int()).abs()
    assert int(difference.max()) <= 1
    assert float((difference == 0).double().mean()) > 0.99


@pytest.mark.parametrize("severity", [1, 5])
@pytest.mark.parametrize("name", RANDOM)
def test_what_is_random_changes_as_much(name, severity):
    changes = [
        (corrupt(IMAGES.to(device), name, severity).cpu().double() - IMAGES).abs().mean()
        for device in ("cpu", "cuda")
    ]
    assert float(changes[1]) == pytest.approx(float(changes[0]), rel=0.1)


@pytest.mark.parametrize("name", RANDOM)
def test_the_same_seed_gives_the_same_bytes(name):
    images = IMAGES.cuda()
    first = corrupt(images, name, 4, seed=9)
    assert first.device == images.device
    assert torch.equal(corrupt(images, name, 4, seed=9), first)
