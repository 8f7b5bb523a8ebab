"""Evaluation of any classifier: its errors and flips, its modes left alone, its mistakes named."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from foveapool.robustness.corruptions import corrupt
from foveapool.robustness.evaluate import evaluate
from foveapool.robustness.metrics import CorruptionTable, FlipTable
from foveapool.robustness.perturbations import perturb
from foveapool.robustness.result import RobustnessResult, average_results
from foveapool.robustness.sets import generate_corruptions, generate_perturbations

from .toys import toy_images, toy_labels, toy_model, toy_normalize

IMAGES, LABELS = toy_images(), toy_labels()
FIRST = IMAGES.permute(0, 3, 1, 2)  # (n, 3, H, W)


def test_errors_and_flips_are_those_counted_by_hand():
    model = toy_model().eval()

    def classes(images):
        return model(toy_normalize(images.permute(0, 3, 1, 2))).argmax(1)

    result = evaluate(
        model,
        FIRST,
        LABELS,
        toy_normalize,
        corruptions=["gaussian_noise", "fog"],
        severities=[5, 2],
        perturbations=["rotate", "shot_noise_3"],
        seed=7,
    )
    assert result.corruptions.clean == (classes(IMAGES) != LABELS).double().mean().item()
    assert list(result.corruptions.errors) == ["gaussian_noise", "fog"]
    for name, errors in result.corruptions.errors.items():
        assert list(errors) == [2, 5]
        for severity, error in errors.items():
            wrong = classes(corrupt(IMAGES, name, severity, seed=7)) != LABELS
            assert error == wrong.double().mean().item()
    for name in ("rotate", "shot_noise_3"):
        frames = perturb(IMAGES, name, seed=7)
        predicted = classes(frames.flatten(0, 1)).view(len(frames), -1)
        noisy = name.startswith("shot")
        before = predicted[:, :1] if noisy else predicted[:, :-1]
        flips = (predicted[:, 1:] != before).float().mean().item()
        assert result.perturbations.flip_probability[name] == pytest.approx(flips, abs=1e-6)
        assert result.perturbations.top5_distance[name] >= flips > 0
        assert result.perturbations.zipf_distance[name] > 0


def test_neither_layout_nor_batch_nor_kind_of_array_matters():
    model, asked = toy_model(), {"corruptions": ["snow"], "perturbations": ["scale"]}
    wanted = evaluate(model, FIRST, LABELS, toy_normalize, **asked)
    last = evaluate(
        model,
        IMAGES.numpy(),
        LABELS.tolist(),
        lambda images: toy_normalize(images.permute(0, 3, 1, 2)),
        batch=5,
        **asked,
    )
    assert last == wanted


def test_a_set_on_disk_gives_what_corrupting_in_flight_gives(tmp_path):
    model = toy_model()
    corruptions, perturbations = ["impulse_noise", "spatter", "frost"], ["snow", "translate"]
    with pytest.warns(UserWarning, match="frost"):
        generate_corruptions(tmp_path / "X-C", IMAGES, LABELS, corruptions, seed=2)
    generate_perturbations(tmp_path / "X-P", IMAGES, perturbations, seed=2)
    asked = {"corruptions": corruptions, "perturbations": perturbations}
    with pytest.warns(UserWarning, match="frost"):
        flying = evaluate(model, FIRST, LABELS, toy_normalize, seed=2, **asked)
    assert evaluate(model, FIRST, LABELS, toy_normalize, folder=tmp_path, **asked) == flying
    with pytest.raises(ValueError, match="its labels are not those that were given"):
        evaluate(model, FIRST, LABELS.flip(0), toy_normalize, folder=tmp_path, **asked)
    with pytest.raises(FileNotFoundError, match=r"fog.npy"):
        evaluate(model, FIRST, LABELS, toy_normalize, folder=tmp_path, corruptions=["fog"])
    with pytest.raises(ValueError, match=r"wanted whole numbers \(115,\)"):
        evaluate(model, FIRST[1:], LABELS[1:], toy_normalize, folder=tmp_path, **asked)


def test_a_function_of_bytes_is_a_model_too():
    def brightest(images):
        assert images.dtype == torch.uint8 and images.shape[1:] == (16, 16, 3)
        return images.float().mean((1, 2)).argmax(1)  # classes, not scores

    result = evaluate(brightest, IMAGES, LABELS % 3, corruptions="brightness", perturbations="tilt")
    assert result.corruptions.errors.keys() == {"brightness"}
    assert "tilt" in result.perturbations.flip_probability
    assert result.perturbations.top5_distance == {}


def test_every_module_gets_its_own_mode_back():
    model = toy_model().train()
    model[3].eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    evaluate(model, FIRST, LABELS, toy_normalize, corruptions=["contrast"])
    assert [module.training for module in model] == [True, True, True, False, True]
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    with pytest.raises(ZeroDivisionError):
        evaluate(model, FIRST, LABELS, lambda images: 1 / 0)
    assert model.training and torch.is_grad_enabled()


def test_nan_is_an_error_that_says_where():
    asked = {"corruptions": ["contrast", "brightness"]}
    limit = corrupt(IMAGES, "brightness", 4).float().mean((1, 2, 3)).max()

    def sick(images):
        """NaN for images brighter than any at severity 4."""
        light = images.float().mean((1, 2, 3))
        scores = light[:, None] * torch.linspace(-1, 1, 4)
        return torch.where(light[:, None] > limit, torch.nan, scores)

    with pytest.raises(ValueError, match=r"brightness, severity 5: the model returned NaN for"):
        evaluate(sick, FIRST, LABELS, **asked)
    with pytest.raises(ValueError, match=r"clean images: the model returned NaN for 24 of 24"):
        evaluate(lambda images: torch.full((len(images), 4), torch.nan), FIRST, LABELS, **asked)


def test_another_precision_is_asked_for():
    seen = []

    class Watch(nn.Linear):
        def forward(self, values):
            found = super().forward(values.flatten(1))
            seen.append(found.dtype)
            return found

    model = Watch(16 * 16 * 3, 4)
    for dtype in (torch.float32, torch.bfloat16):
        evaluate(model, FIRST, LABELS, toy_normalize, corruptions=(), dtype=dtype)
    assert seen == [torch.float32, torch.bfloat16]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_counts_the_same_where_nothing_is_random():
    asked = {"corruptions": ["contrast", "pixelate"], "perturbations": ["rotate"]}
    model = toy_model()
    wanted = evaluate(model, FIRST, LABELS, toy_normalize, **asked)
    moved = evaluate(model, FIRST, LABELS, toy_normalize, device="cuda", **asked)
    assert next(model.parameters()).is_cuda
    again = evaluate(model, FIRST, LABELS, toy_normalize, **asked)  # where the model is now
    assert again == moved
    # TF32 may turn a close decision.
    for figure, value in moved.figures().items():
        assert value == pytest.approx(wanted.figures()[figure], abs=5), figure


def test_progress_counts_every_image_once():
    told = []
    evaluate(
        toy_model(),
        FIRST,
        LABELS,
        toy_normalize,
        corruptions=["contrast"],
        perturbations=["translate"],
        severities=[1, 4],
        batch=10,
        progress=lambda *now: told.append(now),
    )
    total = 24 * (1 + 2 + 16)
    done = [number for number, _, _ in told]
    assert done == sorted(done) and done[-1] == total and {all for _, all, _ in told} == {total}
    assert list(dict.fromkeys(what for *_, what in told)) == [
        "clean images",
        "contrast",
        "translate",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": FIRST / 255}, r"images: got torch.float32 .*, wanted clean uint8 images"),
        ({"images": FIRST[:, :1]}, r"images: got gray ones, \(24, 1, 16, 16\), .*needs color"),
        ({"images": FIRST[:0], "labels": LABELS[:0]}, "images: got none"),
        ({"labels": LABELS[:-1]}, r"labels: got torch.int64 \(23,\), wanted whole numbers \(24,\)"),
        ({"labels": LABELS + 1}, "labels: got 1 to 4, wanted 0 to 3: the model has 4 classes"),
        ({"labels": LABELS.float()}, "labels: got torch.float32"),
        ({"corruptions": "foggy"}, "corruption: got 'foggy', .*did you mean 'fog'"),
        ({"perturbations": ["tild"]}, "perturbation: got 'tild', .*did you mean 'tilt'"),
        ({"severities": [0, 1]}, r"severities: got \[0, 1\]"),
        ({"batch": 0}, "batch: got 0"),
        ({"dtype": torch.int8}, "dtype: got torch.int8"),
        ({"model": lambda images: (images,)}, "model: got tuple for 24 images"),
        ({"model": lambda images: torch.zeros(3, 4)}, r"model: got torch.float32 \(3, 4\) for 24"),
    ],
)
def test_a_mistake_is_named(change, message):
    given = {"model": toy_model(), "images": FIRST, "labels": LABELS, "normalize": toy_normalize}
    with pytest.raises(ValueError, match=message):
        evaluate(**{"corruptions": ["contrast"], **given, **change})


def result_of(*errors, flips=0.5):
    table = CorruptionTable({"fog": dict(enumerate(errors, 1))}, clean=0.25)
    return RobustnessResult(table, FlipTable({"tilt": flips}, {"tilt": 1.0}, {"tilt": 0.125}))


def test_a_result_survives_json():
    result = result_of(0.25, 0.5)
    assert RobustnessResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result
    with pytest.raises(ValueError, match=r"not what RobustnessResult.to_dict gives"):
        RobustnessResult.from_dict({"corruptions": {}})


def test_trials_are_averaged_figure_by_figure():
    mean = average_results([result_of(0.25, 0.5, flips=0.5), result_of(0.75, 0.5, flips=0.0)])
    assert mean.corruptions.errors == {"fog": {1: 0.5, 2: 0.5}}
    assert mean.perturbations.flip_probability == {"tilt": 0.25}
    assert (mean.corruptions.clean, mean.trials) == (0.25, 2)
    # A mean of means counts its trials.
    assert average_results([mean, result_of(0.125, 0.5)]).corruptions.errors["fog"][1] == 0.375
    assert np.isclose(mean.figures()["error %, fog, severity 1"], 50)
    with pytest.raises(ValueError, match="only some of the trials have error %, fog, severity 2"):
        average_results([result_of(0.5), result_of(0.5, 0.5)])
    with pytest.raises(ValueError, match="results: got none"):
        average_results([])
