"""Least squares for the mixing: NumPy's answer, from sums that can be shared and kept."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from foveapool import Mixing
from foveapool.pooling import least_squares
from foveapool.pooling.least_squares import MixingSizes, MixingSums, check_mixing_fits

SIZES = {
    "plain": MixingSizes(4, 6, 3),
    "with a bias": MixingSizes(4, 6, 3, bias=True),
    "grouped": MixingSizes(4, 6, 3, groups=2),
    "depthwise with a bias": MixingSizes(4, 8, 3, groups=4, bias=True),
}
sizes = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)


def data(sizes: MixingSizes, count: int = 30, level: float = 2.0) -> tuple[Tensor, Tensor]:
    """Pooled maps that do not lie around zero, and an output that is not theirs alone."""
    random = torch.Generator().manual_seed(0)
    channels = sizes.components * sizes.in_channels
    pooled = torch.randn(count, channels, 3, 4, generator=random, dtype=torch.float64)
    scales = torch.logspace(-2, 2, channels, dtype=torch.float64)[:, None, None]
    targets = torch.randn(count, sizes.out_channels, 3, 4, generator=random, dtype=torch.float64)
    targets += pooled[:, : sizes.out_channels] + 0.5
    return (pooled + level) * scales, targets


def numpy_answer(sizes: MixingSizes, pooled: Tensor, targets: Tensor):
    """The weights (O, k, C / g), the bias and the share explained, group by group, from NumPy."""
    columns = pooled.unflatten(1, (sizes.components, sizes.groups, -1)).permute(0, 4, 5, 2, 1, 3)
    columns = columns.reshape(-1, sizes.groups, sizes.features).numpy()
    rows = targets.permute(0, 2, 3, 1).reshape(len(columns), sizes.groups, -1).numpy()
    weights, biases, error = [], [], 0.0
    for group in range(sizes.groups):
        given = columns[:, group]
        if sizes.bias:
            given = np.concatenate([given, np.ones((len(given), 1))], 1)
        found = np.linalg.lstsq(given, rows[:, group], rcond=None)[0]
        error += ((given @ found - rows[:, group]) ** 2).sum()
        weights.append(found[: sizes.features].T)
        biases.append(found[sizes.features :].flatten())
    weight = np.concatenate(weights).reshape(sizes.out_channels, sizes.components, -1)
    bias = np.concatenate(biases) if sizes.bias else None
    return weight, bias, 1 - error / ((rows - rows.mean(0)) ** 2).sum()


def taken_in(sizes: MixingSizes, pooled: Tensor, targets: Tensor, batch: int = 7) -> MixingSums:
    sums = MixingSums(sizes)
    for some, others in zip(pooled.split(batch), targets.split(batch), strict=True):
        sums.update(some, others)
    return sums


@sizes
def test_it_is_the_answer_of_numpy(sizes):
    pooled, targets = data(sizes)
    found = taken_in(sizes, pooled, targets).solve()
    weight, bias, explained = numpy_answer(sizes, pooled, targets)
    # Scales differ by four orders of magnitude, and so do the weights.
    np.testing.assert_allclose(found.weight, weight, rtol=1e-5, atol=1e-8)
    assert (found.bias is None) == (bias is None)
    if bias is not None:
        np.testing.assert_allclose(found.bias, bias, rtol=1e-5)
    assert found.explained == pytest.approx(explained, abs=1e-9)
    assert found.ridge == least_squares.RIDGE


@sizes
def test_what_mixing_gives_back_is_what_is_explained(sizes):
    pooled, targets = data(sizes)
    found = taken_in(sizes, pooled, targets).solve()
    given = found.module().double()(pooled).detach()
    error = (given - targets).square().sum()
    share = 1 - error / (targets - targets.mean((0, 2, 3), keepdim=True)).square().sum()
    assert found.explained == pytest.approx(float(share), abs=1e-6)


def test_large_means_do_not_cancel():
    sizes = SIZES["with a bias"]
    pooled, targets = data(sizes)
    wanted = taken_in(sizes, pooled, targets).solve()
    far = taken_in(sizes, pooled + 1e6, targets + 1e6).solve()
    torch.testing.assert_close(far.weight, wanted.weight, rtol=1e-4, atol=1e-6)
    assert far.explained == pytest.approx(wanted.explained, abs=1e-6)


def test_features_that_are_the_same_or_never_vary_do_no_harm():
    sizes = MixingSizes(4, 2, 2, groups=2, bias=True)
    pooled, targets = data(sizes)
    pooled[:, 4:] = pooled[:, :4]  # the second component is the first
    pooled[:, [0, 1, 4, 5]] = 3.0  # and the first group says nothing
    found = taken_in(sizes, pooled, targets).solve()
    assert bool(found.weight.isfinite().all()) and float(found.weight[0].abs().max()) < 1e-6
    torch.testing.assert_close(found.weight[1, 0], found.weight[1, 1], rtol=1e-3, atol=1e-6)


def test_the_ridge_is_in_the_answer():
    sizes = MixingSizes(1, 1, 1)
    sums = MixingSums(sizes)
    sums.update(torch.ones(1, 1, 1, 1), torch.ones(1, 1, 1, 1))
    wanted = 1 / (1 + least_squares.RIDGE)
    assert float(sums.solve().weight) == pytest.approx(wanted, rel=1e-14)


def test_an_output_that_never_varies_is_given_by_the_bias():
    maps = torch.randn(20, 2, 3, 3, generator=torch.Generator().manual_seed(0))
    constant = torch.full((20, 1, 3, 3), 3.0)
    found = taken_in(MixingSizes(2, 1, 1, bias=True), maps, constant).solve()
    assert float(found.bias) == pytest.approx(3) and found.explained == 1


@sizes
def test_sums_that_were_kept_go_on(sizes, tmp_path):
    pooled, targets = data(sizes)
    sums = taken_in(sizes, pooled[:14], targets[:14])
    sums.save(tmp_path / "sums")
    again = MixingSums.load(tmp_path / "sums")
    assert again.describes(sums) and not again.describes(MixingSums(sizes, pooling="another"))
    for start in (14, 21, 28):
        again.update(pooled[start : start + 7], targets[start : start + 7])
    assert torch.equal(again.solve().weight, taken_in(sizes, pooled, targets).solve().weight)


@pytest.mark.parametrize("count", [-1, 10**30])
def test_sums_of_places_that_nobody_can_count_are_refused(count, tmp_path):
    sums = MixingSums(MixingSizes(1, 2, 2, 2))
    sums.count = count
    sums.save(tmp_path / "sums")
    with pytest.raises(ValueError, match=rf"sums: .*count: got {count}, wanted 0 to 2\^53"):
        MixingSums.load(tmp_path / "sums")


def test_a_mixing_can_be_kept_and_is_told_in_words(tmp_path):
    for name in SIZES:
        found = taken_in(SIZES[name], *data(SIZES[name])).solve()
        found.save(tmp_path / "mixing")
        again = Mixing.load(tmp_path / "mixing")
        assert torch.equal(again.weight, found.weight) and str(again) == str(found)
        assert (again.bias is None) == (found.bias is None)
    assert str(found).startswith("mixing of 3 x 4 channels to 8, 4 groups, with a bias: least squ")
    (tmp_path / "mixing").write_bytes(b"no")
    with pytest.raises(ValueError, match="mixing: not a whole safetensors file"):
        Mixing.load(tmp_path / "mixing")


def test_what_does_not_fit_is_refused_and_not_taken_in():
    sums = MixingSums(SIZES["plain"])
    pooled, targets = data(SIZES["plain"])
    with pytest.raises(ValueError, match="mixing: got no maps"):
        sums.solve()
    for wrong in ((pooled[:, :4], targets), (pooled, targets[:, :3]), (pooled[:3], targets)):
        with pytest.raises(ValueError, match=r"wanted 12 and 6 channels of as many places"):
            sums.update(*wrong)
    targets[3, 0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match="got NaN or infinity"):
        sums.update(pooled, targets)
    assert sums.count == 0


def test_sums_that_would_not_fit_into_the_memory_are_refused(monkeypatch):
    monkeypatch.setattr(least_squares, "get_free_memory", lambda device: 10**9)
    small, large = MixingSizes(64, 128, 9), MixingSizes(1024, 2048, 9)
    check_mixing_fits({"a": small}, torch.device("cpu"))
    check_mixing_fits({"a": MixingSizes(1024, 1024, 9, groups=1024)}, torch.device("cpu"))
    message = r"need 3\.3 GB .*for b \(9 components of 1024.* 1\.0 GB .*fewer comp.*mixing='random'"
    with pytest.raises(ValueError, match=message):
        check_mixing_fits({"a": small, "b": large}, torch.device("cpu"))
