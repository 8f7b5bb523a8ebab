"""Small things to train: 64 images of four classes, networks of four channels."""

import torch

from foveapool.data.images import Augmentation, DataSet, Images
from foveapool.networks import build_network
from foveapool.training.recipe import Recipe

CLASSES = ("a", "b", "c", "d")


def toy_images(count, seed):
    """Noise with a bright quarter, another one for each class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 4
    pixels = torch.randint(0, 100, (count, 3, 16, 16), generator=generator)
    for label in range(4):
        row, column = 8 * (label // 2), 8 * (label % 2)
        pixels[labels == label, :, row : row + 8, column : column + 8] += 60
    return Images(pixels.to(torch.uint8), labels, CLASSES)


def toy_data(augmentation=Augmentation(pad=1, flip=False), normalization="channel"):  # noqa: B008
    return DataSet("toy", toy_images(64, 0), toy_images(40, 1), normalization, augmentation)


def toy_network(name="cnn", seed=0, **options):
    return build_network(name, seed=seed, classes=4, width=4, in_shape=(16, 16), **options)


def toy_recipe(epochs=3, **changes):
    return Recipe(**{"optimizer": "sgd", "lr": 0.05, "epochs": epochs, "batch_size": 16, **changes})


def options(folder, **more):
    """What `train` is told besides the network, to train it in a folder."""
    recipe = toy_recipe(3, optimizer=more.pop("optimizer", "sgd"), milestones=(2,))
    return {"data": toy_data(), "recipe": recipe, "device": "cpu", "folder": folder, **more}


def same(one, other):
    """Whether two networks hold the same numbers, bit for bit."""
    ours, theirs = one.state_dict(), other.state_dict()
    return all(torch.equal(ours[name].cpu(), theirs[name].cpu()) for name in ours)
