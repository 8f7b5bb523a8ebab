"""What one may ask of perturbations: lengths, seeds, chunks, sizes, and clear refusals."""

import pytest
import torch

from foveapool.robustness.names import GEOMETRIC_PERTURBATIONS, PERTURBATION_FILES
from foveapool.robustness.perturbations import PERTURBATIONS, iterate_perturbed, perturb

from . import perturbation_oracles as oracles

NAMES = list(PERTURBATIONS)
RANDOM = [name for name, each in PERTURBATIONS.items() if each.random]
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def pictures(count, side=32):
    return torch.from_numpy(oracles.pictures(count, side))


def test_the_table_has_the_20_files_with_their_official_lengths():
    assert set(PERTURBATIONS) == set(PERTURBATION_FILES)
    lengths = {name: each.frames for name, each in PERTURBATIONS.items() if each.frames != 31}
    assert lengths == {"motion_blur": 21, "translate": 16}
    assert {n for n, each in PERTURBATIONS.items() if each.geometric} == set(
        GEOMETRIC_PERTURBATIONS
    )
    noises = {name: each.level for name, each in PERTURBATIONS.items() if each.noise}
    assert len(noises) == 9
    assert all(noises[name] == int(name[-1]) for name in noises if name[-1].isdigit())


@pytest.mark.parametrize("name", NAMES)
def test_all_images_and_frames_are_there_and_change(name):
    images = pictures(2)
    before = images.clone()
    frames = perturb(images, name)
    assert frames.shape == (2, PERTURBATIONS[name].frames, 32, 32, 3)
    assert frames.dtype == torch.uint8
    assert torch.equal(images, before)
    assert not (frames == images[:, None]).flatten(2).all(2).all(1).any()


@pytest.mark.parametrize("name", ["gaussian_noise_2", "shot_noise", "snow", "spatter", "tilt"])
def test_chunks_change_no_byte(name):
    images = pictures(5)
    whole = perturb(images, name, seed=1)
    for chunk in (1, 2, 5, 9):
        parts = list(iterate_perturbed(images, name, seed=1, chunk=chunk))
        assert [len(part) for part in parts] == [len(p) for p in images.split(chunk)]
        assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize("name", ["shot_noise", "rotate", "motion_blur"])
def test_the_order_in_memory_changes_no_byte(name):
    images = pictures(3)
    turned = images.permute(3, 0, 1, 2).contiguous().permute(1, 2, 3, 0)
    assert not turned.is_contiguous()
    assert torch.equal(perturb(turned, name), perturb(images, name))


@pytest.mark.parametrize("name", RANDOM)
def test_the_seed_and_the_place_decide_what_is_drawn(name):
    images = pictures(1).repeat(2, 1, 1, 1)
    frames = perturb(images, name, seed=1)
    assert torch.equal(frames, perturb(images, name, seed=1))
    assert not torch.equal(frames, perturb(images, name, seed=2))
    assert not torch.equal(frames[0], frames[1])
    assert torch.equal(frames[:1], perturb(images[:1], name, seed=1))


@pytest.mark.parametrize("name", ["gaussian_noise", "speckle_noise", "shot_noise"])
def test_levels_of_a_noise_are_stronger_and_drawn_apart(name):
    images = pictures(2)
    files = [name, f"{name}_2", f"{name}_3"]
    changes = [perturb(images, file).int()[:, 1:] - images[:, None].int() for file in files]
    sizes = [float(change.abs().double().mean()) for change in changes]
    assert sizes == sorted(sizes)
    pair = torch.stack([changes[0].flatten().double(), changes[1].flatten().double()])
    assert torch.corrcoef(pair)[0, 1].abs() < 0.3


@pytest.mark.parametrize("side", [28, 224])
@pytest.mark.parametrize("name", [n for n in NAMES if not PERTURBATIONS[n].noise] + ["shot_noise"])
def test_other_sizes_are_changed_about_as_much(name, side):
    """Where lengths grow with the images, an image of another size changes like that of 32."""
    changes = []
    for images in (pictures(2), pictures(2, side)):
        frames = perturb(images, name)[:, ::5].double()
        assert frames.shape[2:4] == images.shape[1:3]
        changes.append(float((frames - images[:, None]).abs().mean()))
    assert 0.3 < changes[1] / changes[0] < 3


def test_a_shrunken_tilt_is_the_tilt_of_a_shrunken_image():
    """All lengths grow with the side, so the outline of the tilted picture is the same."""
    outlines = []
    for side in (32, 64):
        white = torch.full((1, side, side, 3), 255, dtype=torch.uint8)
        outlines.append(perturb(white, "tilt").double().mean((0, 2, 3, 4)) / 255)
    # Half a pixel at the rim weighs half as much at twice the side.
    assert (outlines[0] - outlines[1]).abs().max() < 0.02


def test_no_images_make_no_frames():
    assert perturb(pictures(2)[:0], "snow").shape == (0, 31, 32, 32, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: perturb(pictures(1), "rotat"), "did you mean 'rotate'"),
        (lambda: perturb(pictures(1) / 255, "rotate"), "got torch.float32, wanted uint8"),
        (lambda: perturb(pictures(1).permute(0, 3, 1, 2), "rotate"), r"wanted \(N, H, W, 3\)"),
        (lambda: perturb(pictures(1)[:, :8], "rotate"), "8 x 32 pixels"),
        (lambda: iterate_perturbed(pictures(1), "rotate", chunk=0), "chunk: got 0"),
    ],
)
def test_bad_input_is_named_before_any_work(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name in NAMES if name not in RANDOM])
def test_a_gpu_gives_the_same_pixels(name):
    images = pictures(20)
    ours, theirs = perturb(images.cuda(), name).cpu(), perturb(images, name)
    difference = (ours.int() - theirs.int()).abs()
    assert difference.max() <= 1
    assert (difference > 0).double().mean() < 0.01


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("name", RANDOM)
def test_a_gpu_draws_other_numbers_of_the_same_kind(name):
    images = pictures(200)
    on_gpu = perturb(images.cuda(), name)
    assert torch.equal(on_gpu, torch.cat(list(iterate_perturbed(images.cuda(), name, chunk=77))))
    steps = [f.double().diff(dim=1).abs().mean() for f in (on_gpu.cpu(), perturb(images, name))]
    spread = {"snow": 0.1, "spatter": 0.3}.get(name, 0.01)
    assert float(steps[0] / steps[1]) == pytest.approx(1, abs=spread)
