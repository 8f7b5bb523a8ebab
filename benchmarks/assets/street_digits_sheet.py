"""Draws the contact sheet of street digits that the documentation shows: two columns a class.

Run by hand after a change of the scenes; needs Pillow.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from PIL import Image

from foveapool.data.street_digits import make_street_digits


def sheet(rows: int, seed: int) -> Image.Image:
    """The first scenes of a seed, sorted into two columns for each of the ten digits."""
    digits = make_street_digits(rows * 60, seed)
    columns = [digits.images[digits.labels == label][: 2 * rows] for label in range(10)]
    tiles = torch.stack(columns).unflatten(1, (rows, 2)).permute(1, 4, 0, 2, 5, 3)
    return Image.fromarray(tiles.reshape(rows * 32, 20 * 32, 3).numpy())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", type=Path, default=Path("docs/images/street-digits.png"))
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    # 256 colors halve the file, and no eye sees it at this size.
    colors = sheet(asked.rows, asked.seed).quantize(256, kmeans=4)
    colors.save(asked.file, optimize=True)


if __name__ == "__main__":
    main()
