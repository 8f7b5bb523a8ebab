"""Whether images are enough: what a training would stumble over is said before there is one."""

from dataclasses import replace

import numpy as np
import pytest

from foveapool.pooling.grid import windows
from foveapool.study.preflight import check_images
from foveapool.study.search import Search
from foveapool.study.setting import Setting
from foveapool.study.spec import Source
from foveapool.study.study import Arm, Study

from .small_studies import CPU, RECIPE, SOURCE

CNN = Setting(width=4)
FEW = replace(SOURCE, options={"train_size": 12, "test_size": 8})


PAIRS = replace(RECIPE, batch_size=2)


def study(*arms, source=SOURCE, searches=(), recipe=PAIRS, **more):
    return Study("s", source, recipe, CNN, tuple(searches), (Arm("baseline"), *arms), **more)


def closed_form(**choices):
    return Arm("closed-form", {"layer": 3, **choices})


def test_images_that_are_enough_pass():
    # Images of 32 x 32 have maps of 8 x 8 at the third layer.
    search = Search(layers=(3,), parts=2, held_out=0.2)
    check_images(study(closed_form(components=64), searches=[search]), CPU)
    check_images(study(Arm("sgd", {"layer": 3, "components": 65})), CPU)
    check_images(study(source=replace(SOURCE, share=0.01)), CPU)


@pytest.mark.parametrize(
    ("choices", "most"),
    [
        ({"components": 65}, 64),
        ({"components": 257, "layer": 2}, 256),
        ({"components": 10, "window": 1}, windows((8, 8), (4, 4), 1).shape[1]),
    ],
)
def test_more_components_than_places_are_refused(choices, most):
    layer = choices.get("layer", 3)
    message = (
        rf"got {choices['components']} for closed-form at layer {layer}, wanted at most {most},"
    )
    with pytest.raises(ValueError, match=message):
        check_images(study(closed_form(**choices)), CPU)


def test_components_of_a_search_and_of_what_it_finds_are_looked_at():
    search = Search(layers=(2, 3), components=(65,), parts=1)
    with pytest.raises(ValueError, match=r"components: got 65 for closed-form at layer 3"):
        check_images(study(searches=[search]), CPU)
    arm = Arm("closed-form-trained", {"components": 65})
    with pytest.raises(ValueError, match=r"got 65 for closed-form-trained at layer 3"):
        check_images(study(arm, searches=[Search(layers=(2, 3), parts=1)]), CPU)


def test_a_class_of_which_there_are_too_few_is_named():
    message = r"data: got [01] of class '\d' among the 12 training images, wanted two or more"
    with pytest.raises(ValueError, match=message):
        check_images(study(closed_form(), source=FEW), CPU)
    check_images(study(Arm("sgd", {"layer": 3}), source=FEW), CPU)


def test_a_class_that_a_held_out_part_takes_away_is_named():
    # All 160 images are enough, the sixteen that are left are not for ten classes.
    search = Search(layers=(3,), parts=3, held_out=0.9)
    with pytest.raises(ValueError, match=r"among the 16 training images that held-out part 0 lea"):
        check_images(study(closed_form(), searches=[search]), CPU)
    check_images(study(closed_form(), searches=[replace(search, pooling="sgd")]), CPU)


def test_a_share_of_nothing_is_named_by_its_key():
    with pytest.raises(ValueError, match=r"share: got 0.001, which is 0 of 160 training images"):
        check_images(study(source=replace(SOURCE, share=0.001)), CPU)
    with pytest.raises(ValueError, match=r"search: held_out: got 0.001, which is 0 of 160"):
        check_images(study(searches=[Search("sgd", held_out=0.001)]), CPU)
    with pytest.raises(ValueError, match=r"search: held_out: got 0.999, which is 160 of 160"):
        check_images(study(searches=[Search("sgd", held_out=0.999)]), CPU)


@pytest.mark.parametrize("choices", [{}, {"layer": 3}])
def test_a_cap_that_leaves_nothing_of_a_class_is_known_before_a_baseline_is_trained(choices):
    # A class keeps whole parts of one in 32, and here none of them is as small as the cap.
    many = replace(SOURCE, options={"train_size": 2000, "test_size": 8})
    searches = [Search(layers=(3,), alphas=(5,), norms=("l2",), parts=1)]
    for cap, message in ((2, r"class_cap: got 2 for \d+ samples of class"), (40, None)):
        arm = Arm("closed-form", {"class_cap": cap, **choices})
        one = study(arm, source=many, searches=searches)
        if message is None:
            check_images(one, CPU)
        else:
            with pytest.raises(ValueError, match=message):
                check_images(one, CPU)


def test_a_batch_is_no_larger_than_what_any_search_trains_on():
    check_images(study(recipe=replace(RECIPE, batch_size=160)), CPU)
    with pytest.raises(ValueError, match=r"batch_size: got 161 for the 160 training images, want"):
        check_images(study(recipe=replace(RECIPE, batch_size=161)), CPU)
    # The second search leaves sixteen: known before the first one, not after it.
    searches = [Search("max", parts=1), Search("sgd", parts=1, held_out=0.9)]
    message = r"batch_size: got 32 for the 16 training images that held-out part 0 leaves"
    with pytest.raises(ValueError, match=message):
        check_images(study(searches=searches, recipe=RECIPE), CPU)


@pytest.mark.parametrize("shape", [(1, 24, 32), (3, 15, 32)])
def test_images_that_cannot_be_corrupted_are_refused(tmp_path, shape):
    images, labels = np.zeros((20, *shape), np.uint8), np.arange(20) % 2
    arrays = {
        f"{part}_{key}": value
        for part in ("train", "test")
        for key, value in (("images", images), ("labels", labels))
    }
    np.savez(tmp_path / "own.npz", **arrays)
    own = Source(f"npz:{tmp_path / 'own.npz'}")
    check_images(study(source=own), CPU)
    told = " x ".join(map(str, shape))
    with pytest.raises(ValueError, match=rf"robustness: got test images of {told}, wanted three"):
        check_images(study(source=own, robustness=("perturbations",)), CPU)
