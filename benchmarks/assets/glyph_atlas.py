"""Makes the glyph atlas from which `foveapool.data.street_digits` draws its scenes.

Run once, by hand, after a change of the fonts below; needs Pillow, scipy, fontconfig (`fc-match`)
and the fonts, all of them Debian packages (`--packages` prints their names for `apt install`).

The atlas keeps no pictures but distances: how deep each point lies inside the strokes of a digit
(or how far outside, negative), in heights of the digit. From distances one can draw at any size,
make strokes thicker or thinner, and add outlines; pictures allow none of that.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from safetensors.numpy import save_file
from scipy.ndimage import distance_transform_edt

OFL = "SIL Open Font License 1.1"
APACHE = "Apache License 2.0"
GUST = "GUST Font License (LPPL)"
VERA = "Bitstream Vera licence, changes in the public domain"

# fontconfig's pattern, the Debian package, the licence of the font in it.
FONTS = [
    ("Liberation Sans:bold", "fonts-liberation2", OFL),
    ("Liberation Sans", "fonts-liberation2", OFL),
    ("Liberation Serif:bold", "fonts-liberation2", OFL),
    ("Liberation Serif", "fonts-liberation2", OFL),
    ("Liberation Serif:italic", "fonts-liberation2", OFL),
    ("DejaVu Sans:bold", "fonts-dejavu-core", VERA),
    ("DejaVu Sans", "fonts-dejavu-core", VERA),
    ("DejaVu Serif:bold", "fonts-dejavu-core", VERA),
    ("Roboto", "fonts-roboto-unhinted", APACHE),
    ("Roboto Condensed:bold", "fonts-roboto-unhinted", APACHE),
    ("Roboto Slab:bold", "fonts-roboto-slab", APACHE),
    ("Open Sans:bold", "fonts-open-sans", APACHE),
    ("Open Sans Condensed:bold", "fonts-open-sans", APACHE),
    ("Lato:bold", "fonts-lato", OFL),
    ("Cabin:bold", "fonts-cabin", OFL),
    ("Clear Sans", "fonts-clear-sans", APACHE),
    ("Carlito:bold", "fonts-crosextra-carlito", OFL),
    ("Caladea:bold", "fonts-crosextra-caladea", OFL),
    ("TeX Gyre Adventor", "fonts-texgyre", GUST),
    ("TeX Gyre Adventor:bold", "fonts-texgyre", GUST),
    ("TeX Gyre Bonum", "fonts-texgyre", GUST),
    ("TeX Gyre Bonum:bold:italic", "fonts-texgyre", GUST),
    ("TeX Gyre Chorus", "fonts-texgyre", GUST),
    ("TeX Gyre Pagella", "fonts-texgyre", GUST),
    ("TeX Gyre Schola:bold", "fonts-texgyre", GUST),
    ("TeX Gyre Heros Cn:bold", "fonts-texgyre", GUST),
    ("TeX Gyre Heros Cn", "fonts-texgyre", GUST),
    ("Bebas Neue:bold", "fonts-bebas-neue", OFL),
    ("OSP\\-DIN", "fonts-opendin", OFL),
    ("National Park:style=Heavy", "fonts-national-park", OFL),
    ("Routed Gothic Narrow", "fonts-routed-gothic", OFL),
    ("League Spartan:bold", "fonts-league-spartan", OFL),
    ("Quicksand:bold", "fonts-quicksand", OFL),
    ("Dosis:bold", "fonts-dosis", OFL),
    ("Yanone Kaffeesatz:bold", "fonts-yanone-kaffeesatz", OFL),
    ("Comic Neue:bold", "fonts-comic-neue", OFL),
    ("CMU Serif:bold", "fonts-cmu", OFL),
    ("CMU Concrete", "fonts-cmu", OFL),
    ("GFS Didot", "fonts-gfs-didot", OFL),
    ("Averia Serif GWF", "fonts-averia-serif-gwf", OFL),
    ("Arapey", "fonts-arapey", OFL),
    ("Kaushan Script", "fonts-kaushanscript", OFL),
    ("Dancing Script:bold", "fonts-dancingscript", OFL),
    ("Lobster Two:bold", "fonts-lobstertwo", OFL),
]

# A cell of the atlas, in its own pixels: the digit is HEIGHT high and stands in the middle.
CELL_HEIGHT, CELL_WIDTH, HEIGHT = 32, 28, 26
REACH = 0.16  # distances are kept up to this many heights of the digit
FINE = 16  # the strokes are drawn that much finer than the cell before distances are taken


def font_file(pattern: str) -> str:
    """The file of a font, by fontconfig; an error where another family would stand in for it."""
    command = ["fc-match", "--format", "%{family[0]}|%{file}", pattern]
    family, file = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split(
        "|"
    )
    wanted = pattern.split(":")[0].replace("\\", "")
    if family != wanted:
        raise FileNotFoundError(
            f"{wanted}: not installed (fontconfig offers {family}); install the packages that "
            "--packages prints"
        )
    return file


def distances(font: ImageFont.FreeTypeFont, digit: str) -> tuple[np.ndarray, float]:
    """The distances (CELL_HEIGHT, CELL_WIDTH) of a digit, and its width, in its own heights."""
    left, top, right, bottom = font.getbbox(digit)
    picture = Image.new("L", (right - left, bottom - top))
    ImageDraw.Draw(picture).text((-left, -top), digit, font=font, fill=255)
    picture = picture.crop(picture.getbbox())
    height = HEIGHT * FINE
    width = round(picture.width * height / picture.height)
    widest = (CELL_WIDTH - 4) * FINE
    picture = picture.resize((min(width, widest), height), Image.Resampling.LANCZOS)
    ink = np.zeros((CELL_HEIGHT * FINE, CELL_WIDTH * FINE), bool)
    y, x = (ink.shape[0] - height) // 2, (ink.shape[1] - picture.width) // 2
    ink[y : y + height, x : x + picture.width] = np.asarray(picture) >= 128
    signed = distance_transform_edt(ink) - distance_transform_edt(~ink)
    coarse = signed.reshape(CELL_HEIGHT, FINE, CELL_WIDTH, FINE).mean((1, 3)) / height
    return coarse, picture.width / height


def make(folder: Path) -> None:
    """Writes the atlas and the list of its fonts into `folder`."""
    cells = np.empty((len(FONTS), 10, CELL_HEIGHT, CELL_WIDTH), np.uint8)
    widths = np.empty((len(FONTS), 10), np.float32)
    for row, (pattern, _, _) in enumerate(FONTS):
        font = ImageFont.truetype(font_file(pattern), 600)
        for digit in range(10):
            signed, widths[row, digit] = distances(font, str(digit))
            cells[row, digit] = np.rint(127.5 + 127.5 * np.clip(signed / REACH, -1, 1))
    folder.mkdir(parents=True, exist_ok=True)
    facts = {"kind": "glyph atlas", "format_version": 1, "reach": REACH, "height": HEIGHT}
    facts["fonts"] = [pattern.replace("\\", "") for pattern, _, _ in FONTS]
    save_file(
        {"cells": cells, "widths": widths},
        folder / "glyphs.safetensors",
        metadata={"foveapool": json.dumps(facts)},
    )
    (folder / "glyphs.safetensors").chmod(0o644)
    lines = [f"{p.replace(chr(92), ''):32}{package:26}{licence}" for p, package, licence in FONTS]
    (folder / "FONTS.txt").write_text(HEAD + "\n".join(lines) + "\n", "utf-8")


HEAD = """\
glyphs.safetensors holds the shapes of the digits 0 to 9 in the fonts below, as coarse maps of
distances to the outline; no font file or outline is in it. Made by
benchmarks/assets/glyph_atlas.py.

font (fontconfig's pattern)     Debian package            licence
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("src/foveapool/data/assets"))
    parser.add_argument("--packages", action="store_true", help="print the packages and stop")
    asked = parser.parse_args()
    if asked.packages:
        print(*sorted({package for _, package, _ in FONTS}))
    else:
        make(asked.folder)


if __name__ == "__main__":
    main()
