"""Fog, frost, snow and spatter."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from foveapool._pictures import read_picture
from foveapool.robustness.blur import zoom_and_clip
from foveapool.robustness.filters import (
    canny,
    correlate,
    equalize,
    gaussian,
    layer_shape,
    magnify,
    measure_distance_to,
    motion_blur,
    resize,
)
from foveapool.robustness.images import Draws, get_scale, to_levels, to_unit


def draw_fog_maps(draws: Draws, count: int, size: int, decay: float) -> Tensor:
    """Clouds (count, size, size) from 0 to 1; size: a power of two.

    From step to step the noise falls by the square of `decay`: the authors draw it between minus
    and plus an amplitude, and multiply by that amplitude once more.
    """
    maps = torch.zeros(count, size, size, dtype=torch.float64, device=draws.device)

    def wibbled(total: Tensor) -> Tensor:
        noise = amplitude * (2 * draws.uniform(*total.shape) - 1)
        return total / 4 + amplitude * noise

    step, amplitude = size, 100.0
    while step >= 2:
        half = step // 2
        corners = maps[:, ::step, ::step]
        square = corners + corners.roll(-1, 1)
        square = square + square.roll(-1, 2)
        maps[:, half::step, half::step] = wibbled(square)
        centers = maps[:, half::step, half::step]
        above = centers + centers.roll(1, 1)
        maps[:, ::step, half::step] = wibbled(above + (corners + corners.roll(-1, 2)))
        beside = centers + centers.roll(1, 2)
        maps[:, half::step, ::step] = wibbled(beside + (corners + corners.roll(-1, 1)))
        step, amplitude = half, amplitude / decay
    maps = maps - maps.amin((1, 2), keepdim=True)
    return maps / maps.amax((1, 2), keepdim=True)


def fog(images: Tensor, draws: Draws, strength: float, decay: float) -> Tensor:
    """A cloud added, and the whole darkened so that the brightest value of the image can stay.

    The map is as large as the next power of two and cut to the image.
    """
    count, height, width = images.shape[:3]
    size = 1 << (max(height, width) - 1).bit_length()
    maps = draw_fog_maps(draws, count, size, decay)[:, :height, :width, None]
    values = to_unit(images)
    brightest = values.amax((1, 2, 3), keepdim=True)
    return to_levels((values + strength * maps) * brightest / (brightest + strength))


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


def load_frost_pictures(folder: Path | str | None, scale: float) -> Sequence[Tensor]:
    """uint8 pictures (H, W, 3) of ice for images `scale` times 32 pixels long.

    folder: where .png and .jpg files of ice lie; None looks for those of `imagecorruptions`, and
    draws pictures if it is not installed, with a warning.
    """
    chosen = _find_installed() if folder is None else Path(folder).expanduser()
    if chosen is None:
        warnings.warn(
            "frost: no pictures of ice, so they are drawn: results come near the authors', not "
            "equal to them. Give frost_folder=, or install imagecorruptions, which has theirs",
            stacklevel=3,
        )
        return draw_frost(scale)
    if not chosen.is_dir():
        raise FileNotFoundError(f"frost_folder: {chosen} is no folder, wanted one of .png and .jpg")
    files = sorted(path for path in chosen.iterdir() if path.suffix.lower() in _ENDINGS)
    files = [path for path in files if path.name != _UNSEEN and path.is_file()]
    if not files:
        raise FileNotFoundError(
            f"frost_folder: no .png or .jpg in {chosen}, wanted pictures of ice"
        )
    return [_read_picture(path, path.stat().st_mtime_ns, _SHRINK * scale) for path in files]


def _find_installed() -> Path | None:
    """The pictures of the package imagecorruptions, found without importing it."""
    package = importlib.util.find_spec("imagecorruptions")
    if package is None or package.origin is None:
        return None
    folder = Path(package.origin).parent / "frost"
    return folder if folder.is_dir() else None


# The time of the last change is there to read a changed file again.
@lru_cache(maxsize=32)
def _read_picture(path: Path, changed: int, factor: float) -> Tensor:
    return magnify(torch.from_numpy(read_picture(path)), factor)


@lru_cache(maxsize=4)
def draw_frost(scale: float) -> tuple[Tensor, ...]:
    """Five pictures as `load_frost_pictures` gives them: needles and haze, always the same."""
    return tuple(magnify(_draw_ice(*like), scale) for like in _LIKE)


def _draw_ice(height: int, width: int, color: tuple[float, ...], spread: float) -> Tensor:
    draws = Draws("cpu", "frost", *color)
    # Drawn wider by the length of a needle, since needles pile up at the edges.
    length = 20
    shape = (height + 2 * length, width + 2 * length)
    grains = (draws.uniform(6, *shape) < 0.03).to(torch.uint8) * 255
    needles = motion_blur(grains, length / 2, 6, 360 * draws.uniform(6)).double().amax(0)
    haze = gaussian(draws.normal(1, *shape), 6)[0]
    ice = needles / needles.std() + 1.5 * haze / haze.std() + 0.8 * draws.normal(*shape)
    ice = ice[length:-length, length:-length]
    ice = (ice - ice.mean()) / ice.std()
    shades = torch.tensor(color).double()
    # The spread is that of all values: what the colors leave of it belongs to the ice.
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
    for target, picture in zip(atlas, pictures, strict=True):
        target[: picture.shape[0], : picture.shape[1]] = picture
    atlas, sizes = atlas.to(images.device), sizes.to(images.device)
    chosen = (draws.uniform(count) * len(pictures)).long()
    room = sizes[chosen] - torch.tensor([height, width], device=images.device)
    start = (draws.uniform(count, 2) * room).long()
    rows = start[:, 0, None] + torch.arange(height, device=images.device)
    columns = start[:, 1, None] + torch.arange(width, device=images.device)
    ice = atlas[chosen[:, None, None], rows[:, :, None], columns[:, None, :]]
    return (share * images.double() + ice_share * ice.double()).clamp(0, 255).to(torch.uint8)


def draw_snow_flakes(images: Tensor, values: Tensor, zoom: float, threshold: float) -> Tensor:
    """Grey uint8 flakes (N, H, W) for the images: `values` enlarged, kept where they reach far.

    values: (N, *layer_shape(images)) random numbers, one drawn layer an image.
    """
    flakes = zoom_and_clip(values, zoom)
    flakes = torch.where(flakes < threshold, 0.0, flakes).clamp(0, 1)
    return to_levels(resize(flakes, *images.shape[1:3]))


def lay_snow(images: Tensor, flakes: Tensor, blend: float) -> Tensor:
    """uint8 images under snow: whitened by the share 1 - blend, flakes added in both directions.

    flakes: uint8 (N, H, W), after the wind; they fall a second time, turned by 180 degrees.
    """
    values = to_unit(images, torch.float32)
    red, green, blue = values.unbind(-1)
    grey = (0.299 * red + 0.587 * green + 0.114 * blue)[..., None]
    white = torch.maximum(values, grey * 1.5 + 0.5)
    whitened = blend * values + (1 - blend) * white
    layer = to_unit(flakes)[..., None]
    return to_levels(whitened + layer + layer.flip(1, 2))


def snow(
    images: Tensor,
    draws: Draws,
    mean: float,
    deviation: float,
    zoom: float,
    threshold: float,
    radius: float,
    sigma: float,
    blend: float,
) -> Tensor:
    """Snow blown from above, 45 degrees to either side; streaks grow with the images."""
    values = mean + deviation * draws.normal(len(images), *layer_shape(images))
    angles = 90 * draws.uniform(len(images)) - 135
    scale = get_scale(images)
    flakes = draw_snow_flakes(images, values, zoom, threshold)
    blown = motion_blur(flakes, scale * radius, scale * sigma, angles)
    return lay_snow(images, blown, blend)


# Red, green and blue.
_WATER = (175, 238, 238)
_MUD = (63, 42, 20)

_LIGHT = ((-2.0, -1.0, 0.0), (-1.0, 1.0, 1.0), (0.0, 1.0, 2.0))


def find_wet_pixels(values: Tensor, sigma: float, threshold: float) -> Tensor:
    """(N, rows, columns) random numbers smoothed, and 0 where they stay below the threshold."""
    layer = gaussian(values, sigma)
    return torch.where(layer < threshold, 0.0, layer)


def _make_relief(levels: Tensor) -> Tensor:
    """How strongly drops with these uint8 levels catch the light, as whole levels in float32."""
    box = torch.full((3, 3), 1 / 9, dtype=torch.float64)
    distance = measure_distance_to(canny(levels, 50, 150), cap=20)
    heights = equalize(correlate(distance.double(), box).float().to(torch.uint8))
    lit = correlate(heights.double(), torch.tensor(_LIGHT)).clamp(0, 255)
    return correlate(lit, box).round().float()


def lay_water(images: Tensor, layer: Tensor, strength: float, reproduce: bool = False) -> Tensor:
    """uint8 images under drops; layer: (N, *layer_shape(images)), 0 where no water is.

    Where no drop catches light the authors divide 0 by 0 and the picture turns black: so it does
    here with `reproduce`, and stays as it is without.
    """
    # Above 1 the authors' bytes wrap round.
    levels = (layer * 255).long().remainder(256).to(torch.uint8)
    water = levels.float() * _make_relief(levels)
    brightest = water.amax((1, 2), keepdim=True)
    dry = brightest == 0
    water = torch.where(dry, 0.0, water / brightest * strength)
    water = resize(water, *images.shape[1:3])[..., None]
    color = (torch.tensor(_WATER) / 255).to(images.device)
    result = to_levels(to_unit(images, torch.float32) + water * color)
    return torch.where(dry[..., None], 0, result) if reproduce else result


def lay_mud(images: Tensor, layer: Tensor, threshold: float, sigma: float) -> Tensor:
    """uint8 images under mud where the layer (N, *layer_shape(images)) exceeds the threshold."""
    spots = gaussian((layer > threshold).double(), sigma).float()
    spots = torch.where(spots < 0.8, 0.0, spots)
    spots = resize(spots, *images.shape[1:3])[..., None]
    color = (torch.tensor(_MUD) / 255).to(images.device)
    return to_levels(to_unit(images, torch.float32) * (1 - spots) + color * spots)


def spatter(
    images: Tensor,
    draws: Draws,
    mean: float,
    deviation: float,
    sigma: float,
    threshold: float,
    strength: float,
    kind: str,
) -> Tensor:
    """Drops of "water" of that strength, or of "mud" whose rims are `strength` pixels soft."""
    values = mean + deviation * draws.normal(len(images), *layer_shape(images))
    layer = find_wet_pixels(values, sigma, threshold)
    if kind == "water":
        return lay_water(images, layer, strength)
    return lay_mud(images, layer, threshold, strength)
