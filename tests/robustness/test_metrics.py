"""The metrics against numbers that the official evaluation code gave for the same arrays."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from foveapool.robustness import metrics, names
from foveapool.robustness.metrics import CorruptionErrors, CorruptionTable, FlipRates, FlipTable

VECTORS = json.loads((Path(__file__).parent / "vectors" / "metrics.json").read_text("utf-8"))
SEQUENCES = {vector["name"]: vector for vector in VECTORS["perturbation_metrics"]}
ERRORS = VECTORS["corruption_error"]


def exactly(value):
    return pytest.approx(value, rel=0, abs=1e-10)


def scores_of(vector):
    """The array that the official code was given, made again from its recipe."""
    rng, shape = np.random.default_rng(vector["seed"]), (vector["V"], vector["F"], vector["K"])
    if vector["gen"] == "explicit":
        scores = np.array(vector["scores"])
    elif vector["name"] == "permutations":
        scores = np.array([[rng.permutation(10) for _ in range(6)] for _ in range(4)], float)
    else:
        scores = rng.standard_normal(shape)
        if "cumsum" in vector["gen"]:
            scores = np.cumsum((0.5 if vector["K"] == 100 else 0.3) * scores, axis=1)
        if "2*b" in vector["gen"]:
            scores = scores + 2 * rng.standard_normal((shape[0], 1, shape[2]))
    assert scores.shape == shape
    assert scores.sum() == pytest.approx(vector["sum_check"], rel=1e-9)
    return scores


def table(errors, clean=None):
    return CorruptionTable({name: dict(enumerate(e, 1)) for name, e in errors.items()}, clean)


MODEL = table(ERRORS["model_errors"], ERRORS["model_clean_error"])
BASELINE = table(ERRORS["baseline_errors"], ERRORS["baseline_clean_error"])


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_are_judged_as_the_official_code_does(name):
    vector = SEQUENCES[name]
    scores = scores_of(vector)
    assert scores[0].argmax(-1).tolist() == vector["predictions_row0"]
    assert metrics.rank_classes(scores[0, 0]).tolist() == vector["ranks_video0_frame0"]
    for key, results in vector["results"].items():
        difficulty = int(key.removeprefix("difficulty_"))
        for kind, wanted in results.items():
            rule = {"noise": kind == "noise", "difficulty": difficulty}
            assert metrics.flip_probability(scores, **rule) == exactly(wanted["flip_prob"])
            assert metrics.top5_distance(scores, **rule) == exactly(wanted["top5_dist"])
            assert metrics.zipf_distance(scores, **rule) == exactly(wanted["zipf_dist"])


@pytest.mark.parametrize("name", SEQUENCES)
def test_the_class_gives_the_same_in_two_batches(name):
    vector = SEQUENCES[name]
    scores = torch.from_numpy(scores_of(vector))
    for key, results in vector["results"].items():
        rates = FlipRates(int(key.removeprefix("difficulty_")))
        for part in scores.split((len(scores) + 1) // 2):
            rates.update("shot_noise_2", part)
            rates.update("tilt", part)
        found = rates.compute()
        for file, kind in (("shot_noise_2", "noise"), ("tilt", "non_noise")):
            assert found.flip_probability[file] == exactly(results[kind]["flip_prob"])
            assert found.top5_distance[file] == exactly(results[kind]["top5_dist"])
            assert found.zipf_distance[file] == exactly(results[kind]["zipf_dist"])


@pytest.mark.parametrize("vector", VECTORS["flip_prob_only"])
def test_flips_of_classes_are_counted_as_the_official_code_does(vector):
    if "pred" in vector:
        classes = np.array(vector["pred"])
    else:
        size = tuple(map(int, vector["gen"].split("size=(")[1].rstrip(")").split(",")))
        classes = np.random.default_rng(vector["seed"]).integers(0, 3, size=size)
        assert classes.sum() == vector["sum_check"]
    for noise, key in ((True, "flip_prob_noise"), (False, "flip_prob_non_noise")):
        found = metrics.flip_probability(classes, noise, vector["difficulty"])
        assert found == exactly(vector[key])


@pytest.mark.parametrize("item", VECTORS["pair_distances"]["items"])
def test_distances_of_two_rankings(item):
    assert int(metrics.top5_distances(item["sigma"])) == item["top5"]
    assert float(metrics.zipf_distances(item["sigma"])) == exactly(item["zipf"])


def test_rank_changes_follow_the_class_from_one_frame_to_the_other():
    sigma = VECTORS["pair_distances"]["items"][0]["sigma"]
    # Class k is ranked k + 1 before, and sigma[k] after.
    assert metrics.rank_changes(-np.arange(10.0), -np.array(sigma, float)).tolist() == sigma


def test_ce_and_its_means_are_the_published_formulas():
    assert MODEL.ce(BASELINE) == exactly(ERRORS["CE"])
    assert MODEL.relative_ce(BASELINE) == exactly(ERRORS["relative_CE"])
    assert MODEL.unnormalized_ce() == exactly(ERRORS["unnormalised_CE"])
    assert MODEL.mce(BASELINE) == exactly(ERRORS["mCE"])
    assert MODEL.relative_mce(BASELINE) == exactly(ERRORS["relative_mCE"])
    assert MODEL.mean_error() == exactly(ERRORS["unnormalised_mCE"])
    for wrong_order in ERRORS["note_wrong_orders"].values():
        assert MODEL.mce(BASELINE) != pytest.approx(wrong_order, rel=1e-3)


def test_errors_counted_in_batches_give_the_same_table():
    """200 images a cell, as many wrong ones as the vectors say, the last batch smaller."""
    labels = torch.arange(200) % 10
    errors = CorruptionErrors()
    for name in reversed(ERRORS["corruptions"]):
        for severity in (5, 4, 3, 2, 1):
            wrong = round(200 * ERRORS["model_errors"][name][severity - 1])
            guessed = torch.where(torch.arange(200) < wrong, (labels + 1) % 10, labels)
            scores = torch.nn.functional.one_hot(guessed, 10).float()
            for part in torch.arange(200).split(64):
                errors.update(name, severity, scores[part], labels[part].numpy())
    errors.update_clean(torch.cat([labels[:7] + 1, labels[7:]]), labels)
    found = errors.compute()
    assert found == MODEL
    assert list(found.errors) == list(names.STANDARD_CORRUPTIONS)


def test_mean_flip_rate_divides_before_it_averages():
    vector = VECTORS["mean_flip_rate"]
    model, baseline = (
        FlipTable(dict(zip(names.GENERATOR_TEN, vector[key], strict=True)), {}, {})
        for key in ("model", "baseline")
    )
    assert model.mfp(names.GENERATOR_TEN) == exactly(vector["mFP"])
    assert model.mfr(baseline, names.GENERATOR_TEN) == exactly(vector["mFR"])


def test_the_groups_are_the_authors():
    ten, script = set(names.GENERATOR_TEN), set(names.EVALUATION_TEN)
    assert (ten - script, script - ten) == ({"snow"}, {"spatter"})
    assert set(names.ALL_PERTURBATIONS) == ten | {
        "speckle_noise",
        "gaussian_blur",
        "spatter",
        "shear",
    }
    assert (len(names.ALL_PERTURBATIONS), len(names.PERTURBATION_FILES)) == (14, 20)
    assert (len(names.STANDARD_CORRUPTIONS), len(names.ALL_CORRUPTIONS)) == (15, 19)


def test_flips_between_neighbors_are_counted_for_noises_alone_and_in_batches():
    rates = FlipRates()
    for batch in ([[0, 1, 1, 1, 2]], [[0, 0, 0, 0, 0]]):
        rates.update("shot_noise_2", batch)
        rates.update("tilt", batch)
    found = rates.compute()
    assert found.flip_probability == {"shot_noise_2": 4 / 8, "tilt": 2 / 8}
    assert found.neighbor_flips == {"shot_noise_2": 2 / 8}


def test_a_mean_at_difficulty_two_takes_the_second_noise_level():
    rates = FlipRates(difficulty=2)
    rates.update("shot_noise", [[0, 1, 0, 1, 0]])
    rates.update("shot_noise_2", [[0, 1, 1, 1, 1]])
    rates.update("tilt", [[0, 1, 0, 1, 0]])
    assert rates.compute().mfp(["shot_noise", "tilt"]) == 0.5


def test_noise_levels_are_averaged_before_the_ratio_as_in_the_papers_table():
    files = ["shot_noise", "shot_noise_2", "shot_noise_3"]
    ours = metrics.average_over_levels(dict(zip(files, (6.27, 9.96, 16.69), strict=True)))
    theirs = metrics.average_over_levels(dict(zip(files, (6.86, 10.56, 17.60), strict=True)))
    assert round(100 * metrics.flip_rates(ours, theirs)["shot_noise"], 1) == 94.0
    with pytest.raises(ValueError, match="no value for shot_noise_2, shot_noise_3"):
        metrics.average_over_levels({"shot_noise": 0.1})


def test_top5_distance_against_a_baseline_needs_scores_of_both():
    scores = torch.from_numpy(scores_of(SEQUENCES["iid_normal_seed0"]))
    with_scores, without = FlipRates(), FlipRates()
    with_scores.update("tilt", scores)
    without.update("tilt", scores.argmax(-1))
    model, other = with_scores.compute(), without.compute()
    assert model.mt5d(model, ["tilt"]) == 1
    assert other.flip_probability == model.flip_probability
    assert other.top5_distance == other.zipf_distance == {}
    with pytest.raises(ValueError, match="no value for tilt"):
        model.mt5d(other, ["tilt"])


def test_a_refused_batch_leaves_no_trace():
    rates, errors = FlipRates(), CorruptionErrors()
    rates.update("tilt", [[0, 1, 0]])
    errors.update("fog", 1, [0, 1], [0, 0])
    nan = torch.zeros(2, 3, 4)
    nan[1, 2, 3] = torch.nan
    with pytest.raises(ValueError, match=r"tilt: the model returned NaN for 1 of 6 images"):
        rates.update("tilt", nan)
    with pytest.raises(ValueError, match=r"tilt: got scores after batches of classes"):
        rates.update("tilt", torch.zeros(2, 3, 4))
    with pytest.raises(ValueError, match=r"fog, severity 1: the model returned NaN for 1 of 3"):
        errors.update("fog", 1, nan[1], [0, 0, 0])
    with pytest.raises(ValueError, match=r"got labels of torch.int64 \(3,\) for 2 predictions"):
        errors.update("fog", 1, [0, 1], [0, 0, 0])
    assert rates.compute().flip_probability == {"tilt": 1.0}
    assert errors.compute().errors == {"fog": {1: 0.5}}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CorruptionErrors().update("gausian_noise", 1, [0], [0]), "'gaussian_noise'"),
        (lambda: FlipRates().update("tilted", [[0, 1]]), "did you mean 'tilt'"),
        (lambda: CorruptionErrors().update("fog", 6, [0], [0]), "severity: got 6"),
        (lambda: CorruptionErrors().update("fog", 1, [0.5], [0]), "wanted classes as integers"),
        (lambda: CorruptionErrors().update("fog", 1, [], []), "float32"),
        (lambda: FlipRates(difficulty=4), "difficulty: got 4"),
        (lambda: FlipRates(difficulty=2).update("tilt", [[0, 1]]), "of 3 frames or more"),
        (lambda: FlipRates().update("tilt", [0, 1]), r"integers \(V, F\) or scores"),
        (lambda: metrics.zipf_distance([[0, 1]], True), r"wanted scores as floats \(V, F, K\)"),
        (lambda: metrics.top5_distance([[[0.0, np.nan]] * 2], True), "NaN for 2 of 2"),
        (lambda: MODEL.ce(table({"fog": [0.1]})), "gaussian_noise: errors at severities"),
        (lambda: MODEL.ce(table(dict.fromkeys(MODEL.errors, [0.0] * 5))), "the baseline is 0"),
        (lambda: MODEL.relative_ce(table(ERRORS["baseline_errors"])), "call update_clean"),
        (lambda: table({"fog": [9.5]}).unnormalized_ce(), "divide percent by 100"),
        (lambda: table({"fog": [0.1]}).mean_error(), "no value for gaussian_noise, shot_noise"),
        (lambda: metrics.flip_rates({"tilt": 0.1}, {"tilt": 0.0}), "tilt: the baseline is 0"),
        (lambda: metrics.flip_rates({"tilt": 0.1}, {}), "baseline: no value for tilt"),
        (lambda: metrics.average_over({"tilt": 0.1}, []), "names: got none"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_clean_error_equal_to_the_baselines_leaves_nothing_to_divide_by():
    flat = table(dict.fromkeys(MODEL.errors, [0.1] * 5), 0.1)
    with pytest.raises(ValueError, match="the baseline is"):
        MODEL.relative_ce(flat)
