"""How a network fares on corrupted images and perturbed sequences, drawn in flight or on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from foveapool._eval_mode import eval_mode
from foveapool.robustness.corruptions import block_length, corrupt
from foveapool.robustness.images import refuse_gray
from foveapool.robustness.metrics import CorruptionErrors, FlipRates, Values
from foveapool.robustness.names import (
    SEVERITIES,
    check_severities,
    corruption_names,
    perturbation_names,
)
from foveapool.robustness.perturbations import PERTURBATIONS, iterate_perturbed
from foveapool.robustness.result import RobustnessResult
from foveapool.robustness.sets import (
    CORRUPTIONS_END,
    PERTURBATIONS_END,
    open_corruption,
    open_perturbation,
    read_labels,
    set_folder,
)

PRECISIONS = (torch.float32, torch.bfloat16, torch.float16)
# Told after every batch: images done, images in all, and what they suffer.
Progress = Callable[[int, int, str], None]


def evaluate(
    model: Callable[[Tensor], Tensor],
    images: Values,
    labels: Values,
    normalize: Callable[[Tensor], Tensor] | None = None,
    *,
    corruptions: str | Iterable[str] = "standard",
    severities: Iterable[int] = SEVERITIES,
    perturbations: str | Iterable[str] = (),
    batch: int = 1000,
    device: torch.device | str | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    folder: str | os.PathLike[str] | None = None,
    frost_folder: Path | str | None = None,
    progress: Progress | None = None,
) -> RobustnessResult:
    """Counts a classifier's errors and flips: on clean images, under corruptions, in sequences.

    The model is in evaluation mode meanwhile, without gradients; every module's own mode is put
    back. Scores that are NaN are an error.

    Args:
        model: A module or any callable that gives scores (B, K), or classes (B,), for what
            `normalize` makes of a batch.
        images: Clean, uint8 (n, H, W, 3) or (n, 3, H, W), tensor or array.
        labels: (n,).
        normalize: From uint8 images, laid out as `images` are, to the model's input; None if the
            model takes bytes itself.
        corruptions: "standard", "all", names or ().
        severities: Some of 1 to 5.
        perturbations: "all", names or (); a noise of level 2 is "shot_noise_2".
        batch: Images that the model sees at once.
        device: Where to work, by default where the model is; the model is moved there and stays.
        seed: Of the random ones.
        dtype: Another precision than float32 is torch's autocast.
        folder: Published sets to read instead of making the images: .../CIFAR-10-C,
            .../CIFAR-10-P or a folder that holds both.
        frost_folder: Pictures of ice for "frost", see `load_frost_pictures`.
        progress: Told after every batch: images done, images in all, and what they suffer.

    Returns:
        Errors and flips as fractions.

    Raises:
        ValueError: If a setting is none of these, images and labels do not belong together, or the
            model gives NaN or too few scores.

    Example:
        >>> images, labels = torch.zeros(8, 3, 32, 32, dtype=torch.uint8), torch.zeros(8).long()
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))
        >>> result = evaluate(model, images, labels, lambda x: x / 255, corruptions=["fog"])
        >>> sorted(result.corruptions.errors["fog"])
        [1, 2, 3, 4, 5]
    """
    pixels, channels_first = _check_pixels(images)
    truth = _check_labels(labels, len(pixels))
    chosen, sequences = corruption_names(corruptions), perturbation_names(perturbations)
    chosen_severities = check_severities(severities)
    if batch < 1:
        raise ValueError(f"batch: got {batch}, wanted 1 or more")
    if dtype not in PRECISIONS:
        raise ValueError(f"dtype: got {dtype}, wanted one of {', '.join(map(str, PRECISIONS))}")
    used_device = _move_to_device(model, device)
    pixels, truth = pixels.to(used_device), truth.to(used_device)
    source: InFlight | OnDisk = InFlight(pixels, seed, frost_folder)
    if folder is not None:
        source = OnDisk(Path(folder), truth, chosen, chosen_severities, sequences)
    frames = sum(PERTURBATIONS[name].frames for name in sequences)
    total = len(pixels) * (1 + len(chosen) * len(chosen_severities) + frames)
    classify = _Classifier(
        model, normalize, channels_first, batch, used_device, dtype, total, progress
    )
    errors, flips = CorruptionErrors(), FlipRates()
    with eval_mode(model) if isinstance(model, nn.Module) else torch.no_grad():
        answers = classify(pixels, "clean images")
        _check_classes(answers, truth)
        errors.update_clean(answers, truth)
        for name in chosen:
            for severity in chosen_severities:
                start = 0
                for part in source.corrupted(name, severity):
                    answers = classify(part, name)
                    errors.update(name, severity, answers, truth[start : start + len(part)])
                    start += len(part)
        for name in sequences:
            for part in source.perturbed(name):
                answers = classify(part.flatten(0, 1), name)
                flips.update(name, answers.unflatten(0, part.shape[:2]))
    return RobustnessResult(errors.compute(), flips.compute())


@dataclass
class _Classifier:
    """The model on images of any number, told of as they are done."""

    model: Callable[[Tensor], Tensor]
    normalize: Callable[[Tensor], Tensor] | None
    channels_first: bool
    batch: int
    device: torch.device
    dtype: torch.dtype
    total: int
    progress: Progress | None
    done: int = 0

    def __call__(self, pixels: Tensor, what: str) -> Tensor:
        """The scores (n, K) or classes (n,) of uint8 images (n, H, W, 3)."""
        found = []
        for part in pixels.split(self.batch):
            part = part.to(self.device)
            # A view: the model then sees the memory format that convolutions like best.
            part = part.permute(0, 3, 1, 2) if self.channels_first else part
            values = part if self.normalize is None else self.normalize(part)
            mixed = self.dtype != torch.float32
            with torch.autocast(self.device.type, self.dtype, enabled=mixed):
                answers = self.model(values)
            if not isinstance(answers, Tensor) or answers.shape[:1] != part.shape[:1]:
                raise ValueError(
                    f"model: got {_describe_answers(answers)} for {len(part)} images, wanted a "
                    f"tensor of scores ({len(part)}, K); wrap it in a function that returns them"
                )
            found.append(answers.float() if answers.is_floating_point() else answers)
            self.done += len(part)
            if self.progress is not None:
                self.progress(self.done, self.total, what)
        return torch.cat(found)


def _check_pixels(images: Values) -> tuple[Tensor, bool]:
    """The images as uint8 (n, H, W, 3), and whether they came with their channels first."""
    found = torch.as_tensor(images)
    refuse_gray(found)
    if found.dtype != torch.uint8 or found.dim() != 4 or 3 not in (found.shape[3], found.shape[1]):
        raise ValueError(
            f"images: got {found.dtype} {tuple(found.shape)}, wanted clean uint8 images "
            "(n, H, W, 3) or (n, 3, H, W), not normalized: `normalize` does that afterwards"
        )
    if not len(found):
        raise ValueError("images: got none, wanted one or more")
    if found.shape[3] == 3:
        return found, False
    return found.permute(0, 2, 3, 1).contiguous(), True


def _check_labels(labels: Values, count: int) -> Tensor:
    found = torch.as_tensor(labels)
    if found.shape != (count,) or found.is_floating_point() or found.dtype == torch.bool:
        raise ValueError(
            f"labels: got {found.dtype} {tuple(found.shape)}, wanted whole numbers ({count},), one "
            "an image"
        )
    return found.long()


def _move_to_device(
    model: Callable[[Tensor], Tensor], device: torch.device | str | None
) -> torch.device:
    """Where to work; a module is moved there."""
    if not isinstance(model, nn.Module):
        return torch.device(device or "cpu")
    if device is not None:
        model.to(device)
        return torch.device(device)
    tensors = [*model.parameters(), *model.buffers()]
    return tensors[0].device if tensors else torch.device("cpu")


def _check_classes(answers: Tensor, labels: Tensor) -> None:
    """A label that the model has no score for would count as an error of the model."""
    if answers.dim() == 2 and not 0 <= int(labels.min()) <= int(labels.max()) < answers.shape[1]:
        raise ValueError(
            f"labels: got {int(labels.min())} to {int(labels.max())}, wanted 0 to "
            f"{answers.shape[1] - 1}: the model has {answers.shape[1]} classes"
        )


def _describe_answers(answers: object) -> str:
    if isinstance(answers, Tensor):
        return f"{answers.dtype} {tuple(answers.shape)}"
    return type(answers).__name__


# Bytes of one part: several batches of a model, and little beside the model's own memory.
_PART = 64 * 2**20


class InFlight:
    """Corrupts images uint8 (n, H, W, 3) when asked to, on their device; nothing is kept."""

    def __init__(self, images: Tensor, seed: int = 0, frost: Path | str | None = None) -> None:
        self.images, self.seed, self.frost = images, seed, frost

    def corrupted(self, name: str, severity: int) -> Iterator[Tensor]:
        """All images at one severity, uint8 (N, H, W, 3), some at a time."""
        block = block_length(self.images)
        length = block * max(1, _PART // (block * self.images[0].numel()))
        for start in range(0, len(self.images), length):
            part = self.images[start : start + length]
            yield corrupt(part, name, severity, self.seed, start, self.frost)

    def perturbed(self, name: str) -> Iterator[Tensor]:
        """The sequences of all images, uint8 (N, frames, H, W, 3), some at a time."""
        return iterate_perturbed(self.images, name, self.seed)


class OnDisk:
    """Reads sets in the published layouts; what they lack is said before anything is computed."""

    def __init__(
        self,
        folder: Path,
        labels: Tensor,
        corruptions: Sequence[str] = (),
        severities: Sequence[int] = (),
        perturbations: Sequence[str] = (),
    ) -> None:
        self.labels = labels.cpu()
        if corruptions:
            self.corruptions = set_folder(folder, CORRUPTIONS_END)
            if not torch.equal(read_labels(self.corruptions, len(labels)), self.labels):
                raise ValueError(
                    f"{self.corruptions}: its labels are not those that were given; wanted the "
                    "test images that the set was made of, in their order"
                )
        if perturbations:
            self.perturbations = set_folder(folder, PERTURBATIONS_END)
        for name in corruptions:
            for severity in severities:
                self._open_corruption(name, severity)
        for name in perturbations:
            self._open_perturbation(name)

    def corrupted(self, name: str, severity: int) -> Iterator[Tensor]:
        """All images at one severity, uint8 (N, H, W, 3), some at a time."""
        return _split_array(self._open_corruption(name, severity))

    def perturbed(self, name: str) -> Iterator[Tensor]:
        """The sequences of all images, uint8 (N, frames, H, W, 3), some at a time."""
        return _split_array(self._open_perturbation(name))

    def _open_corruption(self, name: str, severity: int) -> np.ndarray:
        return open_corruption(self.corruptions, name, severity, len(self.labels))

    def _open_perturbation(self, name: str) -> np.ndarray:
        frames = PERTURBATIONS[name].frames
        return open_perturbation(self.perturbations, name, frames, len(self.labels))


def _split_array(array: np.ndarray) -> Iterator[Tensor]:
    rows = max(1, _PART // array[0].size)
    for start in range(0, len(array), rows):
        # A copy: the map itself is not to be written to, and torch would warn of it.
        yield torch.from_numpy(np.array(array[start : start + rows]))
