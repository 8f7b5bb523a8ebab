"""Parcels for a machine that is lent by the minute: images go there, what a study left comes back.

    python benchmarks/parcels.py pack cifar10 --data-root DATA   # here
    python benchmarks/parcels.py unpack                          # there
    python benchmarks/parcels.py keep FOLDER STUDY               # here again

`pack` writes a set as lossless pictures into build/parcels/NAME-0, NAME-1 and so on, each small
enough for one transfer; `unpack` makes of them what `--data-root build/data` finds. `keep` adds the
finished trainings in FOLDER to results/trainings.jsonl.gz, puts what the study left of the others
into build/parcels/left, where `timed_study.sh` looks for it, and prints the table so far. Options
after STUDY are those of `foveapool study`. `list-left` is for `timed_study.sh` itself.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from foveapool.data.images import Augmentation, DataSet, Images
from foveapool.data.registry import get_packed_path, load_data
from foveapool.data.user_data import write_npz
from foveapool.known_trainings import KnownTrainings, read_trainings
from foveapool.runs import RESULT
from foveapool.study.fits import WEIGHTS
from foveapool.study.worker import find_fault
from foveapool.training.checkpoint import CHECKPOINT
from foveapool.training.metrics import METRICS

HOME = Path(__file__).parents[1]
PARCELS, DATA = HOME / "build" / "parcels", HOME / "build" / "data"
KNOWN = HOME / "results" / "trainings.jsonl.gz"
ACROSS, DOWN = 50, 50  # images in a sheet


def pack(name: str, data_root: Path | None, folder: Path, most: float) -> list[Path]:
    """Writes a set as sheets, so many megabytes a parcel; gives the parcels."""
    for old in folder.glob(f"{name}-*"):
        shutil.rmtree(old)
    data = load_data(name, data_root)
    parcels = [folder / f"{name}-0"]
    parcels[0].mkdir(parents=True)
    augmentation = data.augmentation
    np.savez_compressed(
        parcels[0] / "labels.npz",
        train=data.train.labels.numpy(),
        test=data.test.labels.numpy(),
        classes=np.array(data.train.classes),
        normalization=np.array(data.normalization),
        augmentation=np.array([augmentation.pad, augmentation.flip] if augmentation else []),
    )
    used = 0
    for part, images in (("train", data.train.images), ("test", data.test.images)):
        for number, some in enumerate(images.split(ACROSS * DOWN)):
            sheet = folder / f".{name}.webp"
            write_sheet(some, sheet)
            size = sheet.stat().st_size
            if used and used + size > most * 1e6:
                parcels.append(folder / f"{name}-{len(parcels)}")
                parcels[-1].mkdir()
                used = 0
            used += size
            sheet.replace(parcels[-1] / f"{part}-{number:03}.webp")
    return parcels


def write_sheet(images: torch.Tensor, path: Path) -> None:
    """Images (n, 3, H, W), bytes, side by side in one picture without loss."""
    _, channels, height, width = images.shape
    sheet = torch.zeros(ACROSS * DOWN, channels, height, width, dtype=torch.uint8)
    sheet[: len(images)] = images
    rows = sheet.reshape(DOWN, ACROSS, channels, height, width).permute(0, 3, 1, 4, 2)
    picture = rows.reshape(DOWN * height, ACROSS * width, channels).numpy()
    Image.fromarray(picture).save(path, "WEBP", lossless=True, quality=100, method=4)


def read_sheets(paths: Sequence[Path], count: int) -> torch.Tensor:
    """The first `count` images of the sheets."""
    found = []
    for path in paths:
        picture = np.array(Image.open(path).convert("RGB"))
        height, width = picture.shape[0] // DOWN, picture.shape[1] // ACROSS
        rows = picture.reshape(DOWN, height, ACROSS, width, 3).transpose(0, 2, 4, 1, 3)
        found.append(torch.from_numpy(rows.reshape(ACROSS * DOWN, 3, height, width)))
    return torch.cat(found)[:count].contiguous()


def unpack(folder: Path, data_root: Path) -> list[Path]:
    """Makes a packed set of each whose parcels are all there.

    Raises:
        FileNotFoundError: If some of a set's sheets are not there.
    """
    made = []
    for labels in sorted(folder.glob("*-0/labels.npz")):
        name = labels.parent.name.removesuffix("-0")
        path = get_packed_path(name, data_root)
        if path.exists():
            continue
        with np.load(labels) as stored:
            known = {key: stored[key] for key in stored.files}
        parts = []
        for part in ("train", "test"):
            paths = sorted(folder.glob(f"{name}-*/{part}-*.webp"), key=lambda each: each.name)
            wanted = -(-len(known[part]) // (ACROSS * DOWN))
            if len(paths) != wanted:
                raise FileNotFoundError(
                    f"{name}: got {len(paths)} sheets of {part} in {folder}, wanted {wanted}; "
                    f"bring the other parcels of {name} as well"
                )
            images = read_sheets(paths, len(known[part]))
            numbers = torch.from_numpy(known[part])
            parts.append(Images(images, numbers, tuple(known["classes"].tolist())))
        pad = known["augmentation"]
        augmentation = Augmentation(int(pad[0]), bool(pad[1])) if len(pad) else None
        normalization = known["normalization"].item()
        data = DataSet(name, *parts, normalization, augmentation)
        # Every training reads it again: there is room, and inflating takes a second each.
        write_npz(data, path, compress=False)
        made.append(path)
    return made


def list_left(runs: Path, megabytes: float) -> Iterator[Path]:
    """The files that save most training elsewhere, by what they took for each of their bytes.

    A network that others are fitted on comes as its weights, or as its scatter where there is no
    room for them; a training that was cut short as its checkpoint.
    """
    found = []
    for folder in (runs / "trainings").iterdir():
        notes = [path for path in folder.glob("*.json*") if path.is_file()]
        ways = [[folder / WEIGHTS], sorted(folder.glob("scatter-*.safetensors"))]
        if not (folder / RESULT).exists():
            ways = [[folder / CHECKPOINT]]
        ways = [each + notes for each in ways if each and all(path.exists() for path in each)]
        if ways:
            found.append((read_seconds(folder) / measure_size(ways[0]), ways))
    room = megabytes * 1e6
    for _, ways in sorted(found, key=lambda each: each[0], reverse=True):
        files = next((each for each in ways if measure_size(each) <= room), [])
        room -= measure_size(files)
        yield from files


def measure_size(files: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in files)


def read_seconds(folder: Path) -> float:
    """How long a training took, or has taken by now."""
    try:
        lines = (folder / METRICS).read_text("utf-8").splitlines()
        return sum(json.loads(line)["seconds"] for line in lines)
    except (OSError, ValueError, KeyError):
        return 0.0


def keep(folder: Path, study: Sequence[str]) -> None:
    """Takes up what came back: finished trainings, and what is left of the others."""
    if not (folder / KNOWN.name).is_file():
        raise SystemExit(f"{folder}: got no {KNOWN.name}, wanted what timed_study.sh left there")
    came = read_trainings(folder / KNOWN.name, find_fault)
    for fault in [came.damage, *came.faults.values()]:
        if fault:
            print(f"{folder / KNOWN.name}: {fault}")
    known = KnownTrainings(KNOWN, print, find_fault)
    for name, training in came.trainings.items():
        if known.get(name, training) != training:
            print(f"{name}: came with another result than {KNOWN.name} has, which stays")
        known.add(name, *training)
    known.close()
    left = PARCELS / "left"
    pieces = sorted(folder.glob("left.tar.*"))
    if pieces:
        shutil.rmtree(left, ignore_errors=True)
        left.mkdir(parents=True)
    for piece in pieces:
        shutil.copyfile(piece, left / piece.name)
    print(f"{left}: {measure_size(pieces) / 1e6:.0f} MB, for --carry of the next call")
    command = [sys.executable, "-m", "foveapool", "study", *study, "--partial", "--known", KNOWN]
    subprocess.run(command, cwd=HOME, check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    own = commands.add_parser("pack")
    own.add_argument("names", nargs="+")
    own.add_argument("--data-root", type=Path)
    own.add_argument("--megabytes", type=float, default=55, help="of a parcel")
    commands.add_parser("unpack")
    own = commands.add_parser("list-left")
    own.add_argument("runs", type=Path)
    own.add_argument("--megabytes", type=float, default=55, help="in all")
    own = commands.add_parser("keep")
    own.add_argument("folder", type=Path)
    own.add_argument("study", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.command == "pack":
        for name in options.names:
            for parcel in pack(name, options.data_root, PARCELS, options.megabytes):
                size = measure_size(list(parcel.iterdir())) / 1e6
                print(f"{parcel.relative_to(HOME)}: {size:.0f} MB")
    elif options.command == "unpack":
        for path in unpack(PARCELS, DATA):
            print(path)
    elif options.command == "list-left":
        for path in list_left(options.runs, options.megabytes):
            print(path.relative_to(options.runs / "trainings"))
    else:
        keep(options.folder, options.study)


if __name__ == "__main__":
    main()
