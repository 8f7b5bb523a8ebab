"""Recipes: the paper's numbers, and a clear word about every other number."""

import pytest

from foveapool.training.recipe import RECIPES, Recipe, get_paper_recipe, get_recipe, read_recipe

PLAIN = {"optimizer": "sgd", "lr": 0.1, "epochs": 2}


def test_the_resnet_is_trained_as_the_paper_says():
    for data, epochs, milestones in (("cifar100", 350, (150, 250)), ("svhn", 150, (50, 100))):
        recipe = get_paper_recipe("resnet18", data)
        assert (recipe.optimizer, recipe.momentum, recipe.weight_decay) == ("sgd", 0.9, 5e-4)
        assert (recipe.epochs, recipe.milestones, recipe.batch_size) == (epochs, milestones, 128)
        rates = [recipe.rate(m + d) for m in milestones for d in (-1, 0)]
        assert rates == pytest.approx([0.1, 0.01, 0.01, 0.001])


def test_the_cnn_is_trained_by_adam_at_one_rate():
    for data, epochs in (("cifar10", 350), ("svhn-reduced", 150), ("street-digits", 150)):
        recipe = get_paper_recipe("cnn", data)
        assert (recipe.optimizer, recipe.epochs) == ("adam", epochs)
        assert {recipe.rate(epoch) for epoch in range(epochs)} == {1e-3}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_survives_being_written_down(name):
    assert Recipe.from_dict(RECIPES[name].as_dict()) == RECIPES[name]


def test_a_rate_for_poolings_is_written_down_only_where_it_is_one_of_their_own():
    plain = Recipe.from_dict({**PLAIN, "pooling_rate": 1})
    assert plain == Recipe.from_dict(PLAIN)
    assert plain.as_dict() == {
        "optimizer": "sgd",
        "lr": 0.1,
        "epochs": 2,
        "momentum": 0.9,
        "weight_decay": 0.0,
        "milestones": [],
        "gamma": 0.1,
        "batch_size": 128,
    }
    for rate in (0, 0.1, 2.5):
        slow = Recipe.from_dict({**PLAIN, "pooling_rate": rate})
        assert slow.as_dict() == {**plain.as_dict(), "pooling_rate": rate}
        assert Recipe.from_dict(slow.as_dict()) == slow
    assert repr(Recipe.from_dict({**PLAIN, "pooling_rate": 2}).as_dict()["pooling_rate"]) == "2.0"


def test_a_recipe_is_read_from_a_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('optimizer = "adam"\nlr = 0.002\nepochs = 5\nmilestones = [2, 4]\n')
    assert read_recipe(path) == Recipe("adam", 0.002, 5, milestones=(2, 4))
    path.write_text('optimizer = "sgd"\nlr = 0.1\nepochs = 5\npooling_rate = 0.1\n')
    assert read_recipe(path) == Recipe("sgd", 0.1, 5, pooling_rate=0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batchsize": 3}, r"got the key 'batchsize', wanted among.*did you mean 'batch_size'"),
        ({"optimizer": "rmsprop"}, r"optimizer: got 'rmsprop', wanted adam or sgd"),
        ({"lr": -1}, r"lr: got -1, wanted a finite number of 0 or more"),
        ({"lr": "0.1"}, r"lr: got '0.1'"),
        ({"weight_decay": float("nan")}, r"weight_decay: got nan"),
        ({"pooling_rate": -0.1}, r"pooling_rate: got -0.1, wanted a finite number of 0 or more"),
        ({"pooling_rate": float("inf")}, r"pooling_rate: got inf, wanted a finite number"),
        ({"pooling_rate": True}, r"pooling_rate: got True"),
        ({"poolingrate": 1}, r"got the key 'poolingrate'.*did you mean 'pooling_rate'"),
        ({"momentum": 1}, r"momentum: got 1, wanted 0 or more, below 1"),
        ({"epochs": 0}, r"epochs: got 0, wanted a whole number of 1"),
        ({"batch_size": 2.5}, r"batch_size: got 2.5"),
        ({"milestones": 3}, r"milestones: got 3, wanted a list of epochs"),
        ({"milestones": "12"}, r"milestones: got '12', wanted a list of epochs"),
        ({"milestones": [4, 2]}, r"milestones: got \(4, 2\), wanted epochs from 1 on, rising"),
    ],
)
def test_what_a_recipe_cannot_mean_is_refused_by_name(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        Recipe.from_dict({**PLAIN, **changes})


def test_a_file_is_named_in_the_error(tmp_path):
    path = tmp_path / "mine.toml"
    for text, message in (
        ("lr = ", "mine.toml: "),
        ("lr = 0.1", r"mine.toml: recipe: got no optimizer and no epochs"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_recipe(path)
    path.write_bytes(b'optimizer = "\xe9"')
    with pytest.raises(ValueError, match=r"mine.toml: got what is no text in UTF-8 .*a recipe in"):
        read_recipe(path)
    for missing in ("none.toml", "."):
        with pytest.raises(FileNotFoundError, match=r": no such file, wanted a recipe in TOML, or"):
            read_recipe(tmp_path / missing)


def test_an_unknown_recipe_is_answered_with_those_there_are():
    with pytest.raises(
        ValueError, match=r"got 'cnn-cifr', wanted one of.*did you mean 'cnn-cifar'"
    ):
        get_recipe("cnn-cifr")
    with pytest.raises(ValueError, match=r"the paper has none for npz:x; wanted one of cnn-cifar"):
        get_paper_recipe("cnn", "npz:x")


@pytest.mark.parametrize("name", RECIPES)
def test_a_course_of_other_length_falls_at_the_same_shares_of_it(name):
    recipe = RECIPES[name]
    assert recipe.over(recipe.epochs) == recipe
    twice = recipe.over(2 * recipe.epochs)
    for epoch in range(recipe.epochs):
        assert twice.rate(2 * epoch) == twice.rate(2 * epoch + 1) == recipe.rate(epoch)


def test_a_course_too_short_for_its_milestones_keeps_those_it_has_room_for():
    assert Recipe(**PLAIN, milestones=(1,)).over(1).milestones == (1,)
    assert RECIPES["resnet18-cifar"].over(2).milestones == (1,)
