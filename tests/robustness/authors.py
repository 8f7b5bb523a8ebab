"""The random numbers that the authors' scripts draw with numpy, in their order, image by image.

Handed to our corruptions in the place of `Draws`, they must give the authors' pixels.
"""

from __future__ import annotations

import numpy as np
import torch


class Scripted:
    """Answers like `Draws`, with numbers written down before, in the order they are asked for."""

    def __init__(self, *answers: np.ndarray) -> None:
        self.answers = [torch.from_numpy(np.ascontiguousarray(answer)) for answer in answers]
        self.device = torch.device("cpu")

    def normal(self, *shape: int) -> torch.Tensor:
        answer = self.answers.pop(0)
        assert answer.shape == shape
        return answer

    uniform = normal

    def poisson(self, rate: torch.Tensor) -> torch.Tensor:
        return self.normal(*rate.shape)


def scripted(name: str, images: np.ndarray, row: dict, seed: int = 0, ice_sizes=()) -> Scripted:
    """The draws for images of 32 pixels; row: the parameters, ice_sizes: (H, W) of the pictures."""
    random = np.random.RandomState(seed)
    pixels = images.shape[1:]

    def glass() -> list:
        passes = []
        for _ in range(row["passes"]):
            steps = [random.randint(-1, 1, size=2) for _ in range(30 * 30)]
            # From the last pixel to the first; -1 is the lower half of [0, 1).
            passes.append(
                np.reshape(steps, (30, 30, 2))[::-1, ::-1].transpose(2, 0, 1) * 0.5 + 0.75
            )
        return passes

    def frost() -> list:
        chosen = random.randint(5)
        room = np.array(ice_sizes[chosen]) - 32
        start = np.array([random.randint(0, room[0]), random.randint(0, room[1])])
        return [(chosen + 0.5) / len(ice_sizes), (start + 0.5) / room]

    def fog() -> list:
        return [random.uniform(size=(n, n)) for n in (1, 2, 4, 8, 16) for _ in range(3)]

    draw = {
        "gaussian_noise": lambda: [random.normal(size=pixels)],
        "speckle_noise": lambda: [random.normal(size=pixels)],
        "impulse_noise": lambda: [random.uniform(size=pixels), random.uniform(size=pixels)],
        "glass_blur": glass,
        "motion_blur": lambda: [random.uniform()],
        "snow": lambda: [random.normal(size=(32, 32)), random.uniform()],
        "frost": frost,
        "fog": fog,
        "elastic_transform": lambda: [
            random.uniform(size=(3, 2)),
            random.uniform(size=(2, 32, 32)),
        ],
        "spatter": lambda: [random.normal(size=(32, 32))],
    }
    if name == "shot_noise":
        return Scripted(random.poisson(images / 255.0 * row["photons"]).astype(np.float64))
    drawn = [draw[name]() for _ in images]
    return Scripted(*(np.stack(part) for part in zip(*drawn, strict=True)))
