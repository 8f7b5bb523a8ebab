"""Reading a picture, which may come from anyone.

Pillow knows formats that start other programs (EPS) or that nobody has checked for years: only
those named here are opened, whatever a file is called. What is no regular file is not opened at
all, since reading from a pipe waits for ever, and a picture is measured before it is decoded.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from foveapool._suggest import how_to_install

_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
MOST_PIXELS = 64_000_000  # of one picture; decoded and turned to RGB it takes up to ten bytes each


def read_picture(file: Path, resize: tuple[int, int] | None = None) -> np.ndarray:
    """The picture as a new uint8 array (H, W, 3), of the size (H, W) if one is given.

    ValueError names the file where it is none of ours, is damaged or has too many pixels.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(f"reading image files needs Pillow: {how_to_install('data')}") from error
    try:
        if file.exists() and not file.is_file():
            raise ValueError("it is no regular file")
        with Image.open(file, formats=_FORMATS) as stored:
            width, height = stored.size
            if width * height > MOST_PIXELS:
                raise ValueError(
                    f"{width} x {height} pixels, wanted at most {MOST_PIXELS:,}; make it smaller"
                )
            if stored.mode.startswith(("I", "F")):
                raise ValueError(f"mode {stored.mode}, wanted 8 bits a channel")
            image = stored.convert("RGB")
        if resize is not None:
            image = image.resize(resize[::-1], Image.Resampling.BILINEAR)
        return np.array(image)
    except Exception as error:  # a damaged picture may fail in any way
        reason = str(error) or type(error).__name__
        raise ValueError(f"{file}: not an image that can be read ({reason})") from error
