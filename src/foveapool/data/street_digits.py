"""Street digits: house numbers drawn on the fly, the data set that needs no download.

Made to resemble SVHN: a digit in the middle, its neighbours cut by the frame. Here is the set as
a whole, and what makes it repeatable; what one scene consists of is told in `scenes.py`.
"""

from __future__ import annotations

import torch

from foveapool.data.images import Images
from foveapool.data.scenes import BLOCK, Draws, draw_scenes


def street_digits(count: int, seed: int = 0, size: int = 32) -> Images:
    """Draws scenes, each labelled with the digit in its middle.

    For demonstrations, tests and first experiments without a download. Image i depends on the
    seed and on i alone: a larger count only appends. Labels and layouts are the same at every size.
    The same bytes come back on one machine; another processor or version of torch may round single
    values differently.

    Args:
        count: How many scenes.
        seed: Another one gives another set, say for testing.
        size: The side of a scene in pixels, 8 or more.

    Returns:
        The images, uint8 (count, 3, size, size), with labels and the names of the ten classes.

    Raises:
        ValueError: If a number is too small.

    Example:
        >>> digits = street_digits(4, seed=1)
        >>> digits.images.shape, digits.images.dtype, len(digits.classes)
        (torch.Size([4, 3, 32, 32]), torch.uint8, 10)
    """
    for name, value, least in (("count", count, 0), ("seed", seed, 0), ("size", size, 8)):
        if value < least:
            raise ValueError(f"{name}: got {value}, wanted {least} or more")
    images = torch.empty(count, 3, size, size, dtype=torch.uint8)
    labels = torch.empty(count, dtype=torch.int64)
    # Whole blocks, each with random numbers of its own: an image cannot depend on the count.
    for block, first in enumerate(range(0, count, BLOCK)):
        kept = min(BLOCK, count - first)
        scenes, digits = draw_scenes(Draws(seed, block), size)
        images[first : first + kept], labels[first : first + kept] = scenes[:kept], digits[:kept]
    return Images(images, labels, tuple("0123456789"))
