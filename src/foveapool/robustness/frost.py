"""Frost: a picture of ice over the image, taken from files or drawn here.

The authors use photographs, which are not ours to pass on: they come from a folder of the user's
or from the package `imagecorruptions`. Without either, `drawn_frost` makes pictures with the same
colours and spread.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from foveapool.robustness.draws import Draws
from foveapool.robustness.filters import gaussian
from foveapool.robustness.motion import motion_blur
from foveapool.robustness.resample import magnify

# How far the authors shrink their pictures before they cut 32 pixels out of them.
_SHRINK = 0.2
# The authors draw from 0 to 4 with the end left out: their sixth picture is never seen.
_UNSEEN = "frost6.jpg"
_ENDINGS = {".png", ".jpg", ".jpeg"}

# Height, width, mean red, green and blue, deviation: the authors' pictures after shrinking. The
# second stands for two files of the same pixels.
_LIKE = (
    (120, 180, (77.5, 149.0, 165.7), 43.2),
    (63, 112, (200.8, 205.4, 214.5), 22.8),
    (63, 112, (200.8, 205.4, 214.5), 22.8),
    (70, 105, (138.0, 153.2, 165.6), 31.5),
    (99, 132, (112.3, 123.3, 134.7), 44.0),
)


def frost_pictures(folder: Path | str | None, scale: float) -> Sequence[Tensor]:
    """uint8 pictures (H, W, 3) of ice for images `scale` times 32 pixels long.

    folder: where .png and .jpg files of ice lie; None looks for those of `imagecorruptions`, and
    draws pictures if it is not installed, with a warning.
    """
    place = _installed() if folder is None else Path(folder).expanduser()
    if place is None:
        warnings.warn(
            "frost: no pictures of ice, so they are drawn: results come near the authors', not "
            "equal to them. Give frost_folder=, or install imagecorruptions, which has theirs",
            stacklevel=3,
        )
        return drawn_frost(scale)
    if not place.is_dir():
        raise FileNotFoundError(f"frost_folder: {place} is no folder, wanted one of .png and .jpg")
    files = sorted(path for path in place.iterdir() if path.suffix.lower() in _ENDINGS)
    files = [path for path in files if path.name != _UNSEEN]
    if not files:
        raise FileNotFoundError(f"frost_folder: no .png or .jpg in {place}, wanted pictures of ice")
    return [_picture(path, path.stat().st_mtime_ns, _SHRINK * scale) for path in files]


def _installed() -> Path | None:
    """The pictures of the package imagecorruptions, found without importing it."""
    package = importlib.util.find_spec("imagecorruptions")
    if package is None or package.origin is None:
        return None
    folder = Path(package.origin).parent / "frost"
    return folder if folder.is_dir() else None


# The time of the last change is there to read a changed file again.
@lru_cache(maxsize=32)
def _picture(path: Path, changed: int, factor: float) -> Tensor:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "frost reads its pictures with Pillow: pip install 'foveapool[data]'"
        ) from error
    with Image.open(path) as image:
        pixels = np.array(image.convert("RGB"))
    return magnify(torch.from_numpy(pixels), factor)


@lru_cache(maxsize=4)
def drawn_frost(scale: float) -> tuple[Tensor, ...]:
    """Five pictures as `frost_pictures` gives them, of needles and haze; always the same ones."""
    return tuple(magnify(_drawn(*like), scale) for like in _LIKE)


def _drawn(height: int, width: int, colour: tuple[float, ...], spread: float) -> Tensor:
    draws = Draws("cpu", "frost", *colour)
    # Drawn wider by the length of a needle, since needles pile up at the edges.
    length = 20
    shape = (height + 2 * length, width + 2 * length)
    grains = (draws.uniform(6, *shape) < 0.03).to(torch.uint8) * 255
    needles = motion_blur(grains, length / 2, 6, 360 * draws.uniform(6)).double().amax(0)
    haze = gaussian(draws.normal(1, *shape), 6)[0]
    ice = needles / needles.std() + 1.5 * haze / haze.std() + 0.8 * draws.normal(*shape)
    ice = ice[length:-length, length:-length]
    ice = (ice - ice.mean()) / ice.std()
    shades = torch.tensor(colour).double()
    # The spread is that of all values: what the colours leave of it belongs to the ice.
    own = (spread**2 - float(shades.var(correction=0))) ** 0.5
    return (shades + own * ice[..., None]).clamp(0, 255).round().to(torch.uint8)


def frost(
    images: Tensor, draws: Draws, share: float, ice_share: float, pictures: Sequence[Tensor]
) -> Tensor:
    """The share of the image plus the share of a piece of a picture, each image its own piece."""
    count, height, width = images.shape[:3]
    sizes = torch.tensor([picture.shape[:2] for picture in pictures])
    least = sizes.amin(0)
    if height >= least[0] or width >= least[1]:
        raise ValueError(
            f"frost: got images of {height} x {width} pixels and a picture of ice of "
            f"{least[0]} x {least[1]} after scaling, wanted pictures larger than the images"
        )
    atlas = torch.zeros(len(pictures), *sizes.amax(0).tolist(), 3, dtype=torch.uint8)
    for place, picture in zip(atlas, pictures, strict=True):
        place[: picture.shape[0], : picture.shape[1]] = picture
    atlas, sizes = atlas.to(images.device), sizes.to(images.device)
    chosen = (draws.uniform(count) * len(pictures)).long()
    room = sizes[chosen] - torch.tensor([height, width], device=images.device)
    start = (draws.uniform(count, 2) * room).long()
    rows = start[:, 0, None] + torch.arange(height, device=images.device)
    columns = start[:, 1, None] + torch.arange(width, device=images.device)
    ice = atlas[chosen[:, None, None], rows[:, :, None], columns[:, None, :]]
    return (share * images.double() + ice_share * ice.double()).clamp(0, 255).to(torch.uint8)
