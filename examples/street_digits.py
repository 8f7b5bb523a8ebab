"""A small network on street digits with three poolings in turn: strided, BlurPool, closed form.

Each training begins from the same weights and sees the same batches.

    python examples/street_digits.py                            # some minutes on two cores
    python examples/street_digits.py --images 500 --epochs 2    # less than one
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import foveapool as fp
from foveapool.data.street_digits import make_street_digits

LAYER = "6"  # the last convolution that shrinks its maps


def make_network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def make_scenes(count: int, seed: int) -> tuple[Tensor, Tensor]:
    scenes = make_street_digits(count, seed)
    images = scenes.images.float()
    images = images - images.mean((1, 2, 3), keepdim=True)
    return images / images.std((1, 2, 3), keepdim=True), scenes.labels


def train(network: nn.Module, images: Tensor, labels: Tensor, epochs: int) -> None:
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(epochs):
        for batch in torch.randperm(len(images), generator=generator).split(50):
            optimizer.zero_grad()
            F.cross_entropy(network.train()(images[batch]), labels[batch]).backward()
            optimizer.step()


def measure_error(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    with torch.no_grad():
        wrong = network.eval()(images).argmax(1) != labels
    return 100 * float(wrong.float().mean())


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--images", type=int, default=2000)
    options.add_argument("--epochs", type=int, default=10)
    chosen = options.parse_args(arguments)

    train_set, test_set = make_scenes(chosen.images, seed=1), make_scenes(1000, seed=0)
    torch.manual_seed(0)
    start = make_network()

    # The closed form looks at the maps of a trained network, so that is trained first.
    strided = copy.deepcopy(start)
    train(strided, *train_set, chosen.epochs)
    batches = list(zip(train_set[0].split(250), train_set[1].split(250), strict=True))
    fit = fp.ClosedFormPooling().fit(strided, batches, layer=LAYER, mode="mix")
    print(fit.operator_.summary())

    # As published: the convolution at stride 1, norm and activation, then the blur.
    blurred = copy.deepcopy(start)
    blurred.get_submodule(LAYER).stride = (1, 1)
    blurred.insert(int(LAYER) + 3, fp.baseline_pooling("blur", 32, (16, 16), (8, 8)))
    # The 1 x 1 convolution behind P is drawn anew: the network around it is untrained, too.
    closed_form = copy.deepcopy(start)
    print(fp.replace(closed_form, {LAYER: fit.operator_.module()}, mode="mix"))
    errors = {"strided convolution": measure_error(strided, *test_set)}
    for name, network in {"BlurPool": blurred, "closed form, mix": closed_form}.items():
        train(network, *train_set, chosen.epochs)
        errors[name] = measure_error(network, *test_set)
    for name, error in errors.items():
        print(f"{name:20} {error:5.1f} % wrong on 1,000 scenes")
    return errors


if __name__ == "__main__":
    main()
