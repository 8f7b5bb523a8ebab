"""Street digits: pictures of house numbers, drawn by seed, a data set without a download."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor
from torch.nn import functional

from foveapool.data.images import Images


def make_street_digits(count: int, seed: int = 0, size: int = 32) -> Images:
    """Draws scenes, each labeled with the digit in its middle.

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
        >>> digits = make_street_digits(4, seed=1)
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


BLOCK = 200  # scenes drawn together; another number gives other scenes
_ROW = 5  # digits in a row, the labeled one in the middle, of which some are shown
_LENGTHS = (0.07, 0.57, 0.92)  # shares of SVHN's numbers of at most one, two, three digits
# Street colors differ from grey mostly between warm and cool, hardly between green and purple.
_WARM = torch.tensor([1.0, -0.05, -0.95]).reshape(3, 1, 1)


class Draws:
    """The random numbers of one block: by default one a scene, (n, 1, 1), to meet its maps."""

    def __init__(self, seed: int, block: int) -> None:
        # torch keeps 32 bits of a seed: let them be well mixed from both numbers.
        state = np.random.SeedSequence((seed, block)).generate_state(1)[0]
        self._generator = torch.Generator().manual_seed(int(state))

    def uniform(self, low: float, high: float, shape: tuple[int, ...] = (1, 1)) -> Tensor:
        return torch.rand(BLOCK, *shape, generator=self._generator) * (high - low) + low

    def normal(self, deviation: float, shape: tuple[int, ...] = (1, 1)) -> Tensor:
        return torch.randn(BLOCK, *shape, generator=self._generator) * deviation

    def lognormal(self, middle: float, spread: float, shape: tuple[int, ...] = (1, 1)) -> Tensor:
        return middle * self.normal(spread, shape).exp()

    def whole(self, below: int, shape: tuple[int, ...]) -> Tensor:
        return torch.randint(below, (BLOCK, *shape), generator=self._generator)

    def sometimes(self, share: float, values: Tensor) -> Tensor:
        """The values in a share of the scenes, 0 in the others."""
        return values * (self.uniform(0, 1, (1,) * (values.dim() - 1)) < share)


@dataclass(frozen=True, eq=False)
class _Number:
    """A house number as the frame shows it: three maps (n, H, W), lengths in pixels.

    depth: how deep a point lies inside the strokes. shadow: the same, a little aside.
    beyond: how far a point lies outside the plate that would fit the number.
    """

    depth: Tensor
    shadow: Tensor
    beyond: Tensor


def draw_scenes(draws: Draws, size: int) -> tuple[Tensor, Tensor]:
    """A block of scenes, uint8 (n, 3, size, size), and the digits in their middle, int64 (n,)."""
    digits = draws.whole(10, (_ROW,))
    axis = (torch.arange(size) + 0.5) * (2 / size) - 1
    x, y = axis[None, None, :], axis[None, :, None]
    number = _lay_out_number(draws, digits, x, y)
    wall = _draw_wall(draws, x, y, number)
    scenes = _paint(draws, wall, number) * _draw_light(draws, x, y)[:, None]
    return _photograph(draws, scenes), digits[:, _ROW // 2].clone()


def _lay_out_number(draws: Draws, digits: Tensor, x: Tensor, y: Tensor) -> _Number:
    """House numbers with these digits (n, 5) in reach of the frame, the third one in its middle."""
    height = draws.uniform(0.6, 0.92) - draws.sometimes(0.25, draws.uniform(0, 0.22))
    u, v = _tilt(draws, x, y, height)
    shapes = load_atlas()
    fonts = draws.whole(len(shapes.widths), ())
    widths = shapes.widths[fonts[:, None], digits]
    ends = (widths + draws.uniform(0.02, 0.4, (1,))).cumsum(1)
    middle = slice(_ROW // 2, _ROW // 2 + 1)
    places = (ends - widths / 2) - (ends - widths / 2)[:, middle]
    length = 1 + torch.bucketize(draws.uniform(0, 1, (1,)), torch.tensor(_LENGTHS))
    order = torch.arange(_ROW) - _ROW // 2 + (draws.uniform(0, 1, (1,)) * length).long()
    shown = (order >= 0) & (order < length)
    pixels = height * x.shape[2]
    weight = draws.normal(0.015) + 0.008
    depth = (measure_row_depths(fonts, digits, places, shown, u, v) + weight) * pixels

    left = (places - widths / 2).masked_fill(~shown, torch.inf).amin(1)[:, None, None]
    right = (places + widths / 2).masked_fill(~shown, -torch.inf).amax(1)[:, None, None]
    half_width = (right - left) / 2 + draws.uniform(0.06, 0.45)
    half_height = 0.5 + draws.uniform(0.06, 0.45)
    # The p-norm of the point: its unit ball is an ellipse for p = 2, nearly a rectangle for 10.
    p = draws.uniform(2, 10)
    away_u, away_v = (u - (left + right) / 2) / half_width, v / half_height
    away = (away_u.abs().pow(p) + away_v.abs().pow(p)).pow(1 / p)
    beyond = (away - 1) * half_height * pixels
    return _Number(depth, _move(depth, draws.uniform(-0.12, 0.12, (2, 1))), beyond)


def _tilt(draws: Draws, x: Tensor, y: Tensor, height: Tensor) -> tuple[Tensor, Tensor]:
    """Coordinates along and across a number that is shifted, tilted, turned, slanted, scaled."""
    x, y = x - draws.normal(0.11), y - draws.normal(0.11)
    nearness = 1 + draws.normal(0.08) * x + draws.normal(0.08) * y
    x, y = x / nearness, y / nearness
    angle = draws.normal(0.08) + draws.sometimes(0.2, draws.normal(0.25))
    x, y = x * angle.cos() + y * angle.sin(), y * angle.cos() - x * angle.sin()
    stretch = draws.lognormal(0.85, 0.17)
    return (x + draws.normal(0.12) * y) / (2 * height * stretch), y / (2 * height)


def _move(maps: Tensor, shift: Tensor) -> Tensor:
    """The maps (n, H, W) moved by `shift` (n, 2, 1), in frame lengths."""
    placed = torch.cat((torch.eye(2).expand(len(maps), 2, 2), -shift), 2)
    grid = functional.affine_grid(placed, [len(maps), 1, *maps.shape[1:]], align_corners=False)
    return functional.grid_sample(
        maps[:, None], grid, padding_mode="border", align_corners=False
    ).squeeze(1)


def _cover(depth: Tensor) -> Tensor:
    """How much of each pixel something covers whose edge runs `depth` pixels away from it."""
    return (depth + 0.5).clamp(0, 1)


def _enlarge_patches(patches: Tensor, size: int, mode: str = "bicubic") -> Tensor:
    """A few random values a side, as a smooth field over the frame."""
    return functional.interpolate(patches, (size, size), mode=mode, align_corners=False)


def _draw_wall(draws: Draws, x: Tensor, y: Tensor, number: _Number) -> Tensor:
    """The unevenness (n, H, W) of what the number stands on: stains, plaster, boards, a plate."""
    size = x.shape[2]
    stains = draws.normal(1, (1, 4, 4)) * draws.uniform(0, 0.06, (1, 1, 1))
    plaster = draws.normal(1, (1, 14, 14)) * draws.uniform(0, 0.04, (1, 1, 1))
    wall = _enlarge_patches(draws.sometimes(0.7, stains), size)
    wall = (wall + _enlarge_patches(draws.sometimes(0.4, plaster), size, "bilinear"))[:, 0]
    phase = draws.uniform(0, 2 * math.pi) + draws.uniform(4, 14) * y + draws.normal(1) * x
    wall = wall + (3 * phase.sin()).tanh() * draws.sometimes(0.12, draws.normal(0.1))
    wall = wall + _cover(number.beyond) * draws.sometimes(0.4, draws.normal(0.25))
    pixel = size / 32
    frame = _cover(0.7 * pixel - (number.beyond + 1.5 * pixel).abs())
    return wall + frame * draws.sometimes(0.15, draws.normal(0.25))


def _paint(draws: Draws, wall: Tensor, number: _Number) -> Tensor:
    """The scene (n, 3, H, W) in even light: the wall's color, the number's shadow and its ink."""
    ground = (draws.normal(0.2) + 0.47).clamp(0.06, 0.95)
    contrast = 0.12 + draws.lognormal(0.22, 0.6)
    # Mostly the side with room for it, so that few numbers drown in black or white.
    darker = draws.uniform(0.2, 0.8) < ground
    ink = ground + torch.where(darker, -contrast, contrast)
    tint = _draw_tint(draws, 0.035, 0.012) + draws.sometimes(0.2, _draw_tint(draws, 0.1, 0.04))
    tint = tint - 0.012 * _WARM
    ink_tint = _draw_tint(draws, 0.03, 0.015) + draws.sometimes(0.15, _draw_tint(draws, 0.12, 0.05))

    pixel = wall.shape[2] / 32
    field = wall + ground
    field = field + _cover(0.7 * number.shadow) * draws.sometimes(0.45, draws.normal(0.15))
    outline = _cover(number.depth + 1.4 * pixel)
    field = field + outline * draws.sometimes(0.1, draws.normal(0.2))
    opaque = draws.uniform(0.85, 1)
    cover = (_cover(number.depth) * opaque)[:, None]
    paint = (ink + 0.3 * wall)[:, None] + ink_tint
    return field[:, None] * (1 - cover) + paint * cover + tint


def _draw_tint(draws: Draws, warm: float, rest: float) -> Tensor:
    """A difference from grey (n, 3, 1, 1)."""
    return draws.normal(warm, (1, 1, 1)) * _WARM + draws.normal(rest, (3, 1, 1))


def _draw_light(draws: Draws, x: Tensor, y: Tensor) -> Tensor:
    """How much light falls on each point (n, H, W): a slope, and at times the edge of a shade."""
    slope = 1 + draws.normal(0.08) * x + draws.normal(0.06) * y
    turn = draws.uniform(0, 2 * math.pi)
    side = x * turn.cos() + y * turn.sin() - draws.normal(0.5)
    shade = torch.sigmoid(side * draws.uniform(4, 30))
    return slope * (1 - shade * draws.sometimes(0.15, draws.uniform(0.1, 0.5)))


def _photograph(draws: Draws, scenes: Tensor) -> Tensor:
    """The scenes as bytes, after a lens that blurs, false colors and grain."""
    size = scenes.shape[3]
    blur = draws.lognormal(1.1, 0.5).clamp(0.5, 3)
    rows, columns = (_make_blur(blur * draws.lognormal(1, 0.15), size) for _ in range(2))
    grain_blur = _make_blur(draws.uniform(0.4, 1.2), size)
    grain_strength = draws.lognormal(0.0067, 0.5, (1, 1, 1))
    stains = draws.normal(1, (3, 6, 6)) * draws.lognormal(0.017, 0.5, (1, 1, 1))
    stains = stains - stains.mean(1, keepdim=True)
    # Last, for it alone takes more random numbers for a larger frame.
    grain = draws.normal(1, (3, size, size))
    grain = 0.3 * grain + grain.mean(1, keepdim=True)
    scenes = rows @ scenes @ columns.mT + _enlarge_patches(stains, size)
    scenes = scenes + grain_strength * (grain_blur @ grain @ grain_blur.mT)
    return (scenes * 255).round().clamp(0, 255).to(torch.uint8)


def _make_blur(deviation: Tensor, size: int) -> Tensor:
    """Matrices (n, 1, size, size) that blur along one side, by pixels of a frame of 32."""
    at = torch.arange(size) * (32 / size)
    weights = torch.exp(-0.5 * ((at[:, None] - at) / deviation) ** 2)
    return (weights / weights.sum(2, keepdim=True))[:, None]


ATLAS = Path(__file__).parent / "assets" / "glyphs.safetensors"


@dataclass(frozen=True, eq=False)
class Atlas:
    """The digits 0 to 9 of every font.

    depths: (fonts, 10, H, W), how deep a point lies inside a stroke, negative outside, in heights
    of the digit and cut off at `reach`. widths: (fonts, 10), in heights of the digit. height: how
    many rows of its cell a digit fills; it stands in the middle.
    """

    depths: Tensor
    widths: Tensor
    reach: float
    height: int


@functools.cache
def load_atlas() -> Atlas:
    """The atlas of the package, read once."""
    with safe_open(ATLAS, framework="pt") as file:
        facts = json.loads(file.metadata()["foveapool"])
        depths = (file.get_tensor("cells").float() / 127.5 - 1) * facts["reach"]
        return Atlas(depths, file.get_tensor("widths"), facts["reach"], facts["height"])


def measure_row_depths(
    fonts: Tensor, digits: Tensor, places: Tensor, shown: Tensor, u: Tensor, v: Tensor
) -> Tensor:
    """How deep each point (n, H, W) lies inside the strokes of its scene's row of digits.

    fonts (n,), one a scene; digits, where along the row their middles are, and which of them are
    shown, all (n, k). u and v (n, H, W) are the points' coordinates along and across the row.
    All lengths are in heights of the digit.
    """
    shapes = load_atlas()
    rows, columns = shapes.depths.shape[2:]
    deepest = torch.full_like(u, -shapes.reach)
    for k in range(digits.shape[1]):
        at = shown[:, k].nonzero()[:, 0]
        x = (u[at] - places[at, k, None, None]) * (2 * shapes.height / columns)
        points = torch.stack((x, v[at] * (2 * shapes.height / rows)), 3)
        cells = shapes.depths[fonts[at], digits[at, k]][:, None]
        found = functional.grid_sample(cells, points, padding_mode="border", align_corners=False)
        deepest[at] = torch.maximum(deepest[at], found[:, 0])
    return deepest
