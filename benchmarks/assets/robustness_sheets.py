"""Draws the sheets of corruptions and perturbations that the documentation shows.

Run by hand after a change of what they look like; needs Pillow.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from foveapool.data.street_digits import make_street_digits
from foveapool.robustness.corruptions import CORRUPTIONS, corrupt
from foveapool.robustness.names import ALL_PERTURBATIONS
from foveapool.robustness.perturbations import perturb

TILE, GAP, LABEL = 64, 2, 112
FRAMES = 8


def corruption_rows(image: Tensor) -> dict[str, Tensor]:
    """A row of tiles for each corruption: clean, then severities 1 to 5."""
    images = image[None]
    return {
        name: torch.cat([images, *(corrupt(images, name, severity) for severity in range(1, 6))])
        for name in CORRUPTIONS
    }


def perturbation_rows(image: Tensor) -> dict[str, Tensor]:
    """A row of tiles for each perturbation: frames from the first to the last, evenly spread."""
    rows = {}
    for name in ALL_PERTURBATIONS:
        # The first level of a noise is hardly visible.
        file = f"{name}_3" if "noise" in name else name
        frames = perturb(image[None], file)[0]
        rows[file] = frames[torch.linspace(0, len(frames) - 1, FRAMES).round().long()]
    return rows


def sheet(rows: dict[str, Tensor], blocks: int = 2) -> Image.Image:
    """The rows with their names, in blocks side by side."""
    height = -(-len(rows) // blocks)
    columns = len(next(iter(rows.values())))
    width = LABEL + columns * (TILE + GAP)
    picture = Image.new("RGB", (blocks * width, height * (TILE + GAP)), "white")
    draw = ImageDraw.Draw(picture)
    for number, (name, tiles) in enumerate(rows.items()):
        x, y = number // height * width, number % height * (TILE + GAP)
        draw.text((x + 6, y + TILE // 2 - 6), name.replace("_", " "), fill="black")
        for column, tile in enumerate(tiles):
            large = Image.fromarray(tile.numpy()).resize((TILE, TILE), Image.Resampling.NEAREST)
            picture.paste(large, (x + LABEL + column * (TILE + GAP), y))
    return picture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("docs/images"))
    parser.add_argument("--scene", type=int, default=67, help="which of the street digits")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")  # frost is drawn here, as the documentation says
    image = make_street_digits(asked.scene + 1).images[asked.scene].permute(1, 2, 0).contiguous()
    for name, rows in (
        ("corruptions", corruption_rows(image)),
        ("perturbations", perturbation_rows(image)),
    ):
        # 256 colors halve the file, and no eye sees it at this size.
        sheet(rows).quantize(256, kmeans=4).save(asked.folder / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
