"""What the second pass does beside its products, against what it is short for."""

import pytest
import torch

from foveapool.pooling.gram import subtract_and_weight, sum_by_class

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
        ],
    ),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels_last", [False, True])
def test_the_weighted_difference_has_the_same_bits(device, dtype, channels_last):
    generator = torch.Generator().manual_seed(0)
    maps = (1e4 + torch.randn(7, 5, 12, generator=generator, dtype=dtype)).to(device)
    if channels_last:
        maps = maps.mT.contiguous().mT
    level = maps[0].clone()
    weight = torch.rand(7, 5, 1, generator=generator, dtype=dtype).to(device)
    out = torch.full((7, 5, 12), torch.nan, dtype=dtype, device=device)
    assert subtract_and_weight(maps, level, weight, out=out) is out
    assert torch.equal(out, (maps - level) * weight)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("classes", [3, 40])
def test_class_sums_are_those_of_a_loop_and_repeat_to_the_last_bit(device, classes):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(500, 6, 20, generator=generator).to(device)
    labels = torch.randint(0, 3, (500,), generator=generator).to(device)
    found = sum_by_class(rows, labels, classes)
    wanted = torch.stack([rows[labels == q].double().sum(0) for q in range(classes)])
    assert found.shape == (classes, 6, 20)
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=1e-4)
    assert not found[3:].any()
    assert torch.equal(sum_by_class(rows, labels, classes), found)
