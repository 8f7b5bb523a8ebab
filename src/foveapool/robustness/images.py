"""What corruptions begin and end with: images on the unit scale, checked, and random numbers.

Levels become values and back as in the authors' code: results are cut down to whole levels, never
rounded, so that a value that is no exact level loses half a level on average. Everything random is
drawn through `Draws`, so that a corruption is a function of the images and of these numbers alone:
the same numbers from another source give the same pixels.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

# The side of the images that the authors' parameters are meant for.
SIDE = 32
SMALLEST = 16


def divide(values: Tensor, number: float) -> Tensor:
    """`values / number` to the last bit, which decides where results are cut down to levels.

    A GPU would multiply by the reciprocal of a plain number.
    """
    return values / torch.full((), number, dtype=values.dtype, device=values.device)


def to_unit(images: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """uint8 levels as values from 0 to 1."""
    return divide(images.to(dtype), 255)


def to_levels(values: Tensor) -> Tensor:
    """Values on the unit scale as uint8, clipped and cut down to whole levels."""
    return (values.clamp(0, 1) * 255).to(torch.uint8)


def get_scale(images: Tensor) -> float:
    """How many times longer the shorter side of (N, H, W, ...) is than 32 pixels, 1 if it is not.

    Lengths of corruptions grow by it. They do not shrink with smaller images: most are a pixel or
    two, and less than that would be nothing.
    """
    return max(1.0, min(images.shape[1:3]) / SIDE)


def refuse_gray(images: Tensor) -> None:
    """ValueError if these are images of one channel, wherever it stands."""
    sizes = (images.shape[1], images.shape[3]) if images.dim() == 4 else ()
    if 1 in sizes and 3 not in sizes:
        raise ValueError(
            f"images: got gray ones, {tuple(images.shape)}, but robustness needs color images; "
            "repeat the one channel three times for a network that takes three"
        )


def check_images(images: Tensor) -> None:
    """ValueError unless these are uint8 images (N, H, W, 3) of 16 pixels or more a side."""
    if not isinstance(images, Tensor):
        raise ValueError(
            f"images: got {type(images).__name__}, wanted a torch tensor; torch.from_numpy makes "
            "one of an array"
        )
    if images.dtype != torch.uint8:
        raise ValueError(
            f"images: got {images.dtype}, wanted uint8 levels from 0 to 255, not normalized; from "
            "values between 0 and 1, (images * 255).round().to(torch.uint8) makes them"
        )
    refuse_gray(images)
    if images.dim() != 4 or images.shape[3] != 3:
        raise ValueError(
            f"images: got shape {tuple(images.shape)}, wanted (N, H, W, 3), the channels last; "
            "permute(0, 2, 3, 1) brings (N, 3, H, W) there"
        )
    if min(images.shape[1:3]) < SMALLEST:
        raise ValueError(
            f"images: got {images.shape[1]} x {images.shape[2]} pixels, wanted {SMALLEST} or more "
            "a side; below that the kernels are larger than the picture"
        )


class Draws:
    """A source of random numbers in float64 on one device, fixed by a key.

    key: anything that prints the same each time, say (name, severity, seed, block). Other keys
    give unrelated numbers; another kind of device gives other numbers too.
    """

    def __init__(self, device: torch.device | str, *key: object) -> None:
        digest = hashlib.blake2b("/".join(map(str, key)).encode(), digest_size=8).digest()
        self.device = torch.device(device)
        self.generator = torch.Generator(self.device)
        self.generator.manual_seed(int.from_bytes(digest, "little") >> 1)

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers."""
        return torch.randn(shape, generator=self.generator, dtype=torch.float64, device=self.device)

    def uniform(self, *shape: int) -> Tensor:
        """Numbers spread evenly over [0, 1)."""
        return torch.rand(shape, generator=self.generator, dtype=torch.float64, device=self.device)

    def poisson(self, rate: Tensor) -> Tensor:
        """Whole numbers with these means."""
        return torch.poisson(rate, generator=self.generator)
