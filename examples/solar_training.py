"""One fine-tuning on solar cells: a pooling is put in, the network trained, its errors counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from efficientnet_lite import build_pretrained
from solar_data import DEGREES, SolarCells
from torch import Tensor, nn
from torch.nn import functional as F

import foveapool as fp

# The last two layers that shrink their maps; batch-norm and activation follow as bn1 and act1.
BLOCKS = ("blocks.5", "blocks.11")
LAYERS = tuple(f"{block}.depthwise_conv" for block in BLOCKS)
BATCH, WARM_UP, DECAY = 32, 0.1, 0.01

# Told the share of a training that is done.
Say = Callable[[float], None]


@dataclass(frozen=True)
class Arm:
    """One way to shrink maps: the settings among which a search chooses.

    Attributes:
        form: Where a closed form stands; nothing for the others.
        choices: Filters of BlurPool by name, or alphas in units of trace(B)/N.
        frozen: The same where the network stays as it is and a linear layer reads it.
    """

    form: str = ""
    choices: tuple[str | float, ...] = ("",)
    frozen: tuple[str | float, ...] = ("",)


BLURS = ("blur", "blur-5")
ARMS = {
    "strided": Arm(),
    "BlurPool": Arm("", BLURS, BLURS),
    "closed form, replace": Arm("replace", (0.5, 2.0), (0.5, 2.0)),
    "closed form, mix": Arm("mix", (0.5, 2.0), (0.5, 2.0)),
    "closed form, after": Arm("after", (3.0, 10.0), (10.0, 100.0)),
    "closed form, after-activation": Arm("after-activation", (3.0, 10.0), (10.0, 100.0)),
}
# Learning rates, and penalties on the weights of a linear layer. Every arm has as many settings as
# any other: one with two choices has half of them.
RATES = {1: (3e-3, 1e-3, 6e-4, 3e-4, 1e-4, 3e-5), 2: (1e-3, 3e-4, 1e-4)}
PENALTIES = {1: (0.3, 0.1, 0.06, 0.03, 0.01, 0.003), 2: (0.1, 0.03, 0.01)}


@dataclass(frozen=True)
class Setting:
    """What one training differs in from the others; for a linear layer the rate is a penalty."""

    arm: str
    rate: float
    choice: str | float


def list_settings(arm: str, frozen: bool = False) -> list[Setting]:
    choices = ARMS[arm].frozen if frozen else ARMS[arm].choices
    rates = (PENALTIES if frozen else RATES)[len(choices)]
    return [Setting(arm, rate, each) for each in choices for rate in rates]


def prepare_images(cells: SolarCells, size: int, device: torch.device) -> Tensor:
    """All photographs (n, 1, size, size), bytes, once in the device's memory."""
    images = cells.photographs.images
    if size != images.shape[-1]:
        pieces = [
            F.interpolate(piece.float(), (size, size), mode="bilinear", antialias=True)
            for piece in images.split(200)
        ]
        images = torch.cat(pieces).round().to(torch.uint8)
    return images.to(device)


def to_inputs(images: Tensor) -> Tensor:
    """What the network's ImageNet weights were trained to read."""
    return (images.float() - 127) / 128


def fine_tune(
    cells: SolarCells,
    images: Tensor,
    setting: Setting,
    parts: tuple[Tensor, Tensor],
    epochs: int,
    seed: int,
    say: Say = lambda done: None,
) -> dict[str, float]:
    """Fine-tunes the pretrained network on the first part, and counts errors on the second.

    Args:
        cells: The labels and the weights to start from.
        images: Those of `prepare_images`.
        setting: The way to shrink maps, and the learning rate.
        parts: The numbers of the images to train and to test with.
        epochs: How often to see the training images.
        seed: Of the last layer's weights, the order of the images and their flips.
        say: Told how far it is.

    Returns:
        Percent wrong, and the mean over the four degrees of percent wrong.
    """
    torch.manual_seed(seed)
    network = build_pretrained(cells.weights, len(DEGREES), grey=True).to(images.device)
    labels = cells.photographs.labels.to(images.device)
    train, test = (part.to(images.device) for part in parts)
    put_in(network, setting, to_inputs(images[train]), labels[train], images.shape[-1])
    network.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(network.parameters(), setting.rate, weight_decay=DECAY)
    size = min(BATCH, len(train))
    steps = epochs * (len(train) // size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, setting.rate, steps, pct_start=WARM_UP, cycle_momentum=False
    )
    draws = torch.Generator().manual_seed(seed)
    network.train()
    for step in range(steps):
        at = step % (len(train) // size)
        if at == 0:
            order = train[torch.randperm(len(train), generator=draws).to(train.device)]
        batch = order[at * size : (at + 1) * size]
        flipped = flip(images[batch], torch.rand(2, size, generator=draws) < 0.5)
        optimizer.zero_grad(set_to_none=True)
        with run_fast(images.device):
            scores = network(to_inputs(flipped).contiguous(memory_format=torch.channels_last))
        F.cross_entropy(scores.float(), labels[batch]).backward()
        optimizer.step()
        schedule.step()
        say((step + 1) / steps)
    network.eval()
    with torch.no_grad(), run_fast(images.device):
        scores = [network(to_inputs(some)) for some in images[test].split(100)]
    return measure_errors(torch.cat(scores), labels[test])


def put_in(
    network: nn.Module, setting: Setting, inputs: Tensor, labels: Tensor, size: int
) -> fp.ClosedFormPooling | None:
    """Puts the setting's pooling into the pretrained network, at the last two layers that shrink.

    A closed form is fitted on these inputs: what is trained with, as it is, `size` pixels a side.
    Its fit is given back.
    """
    form = ARMS[setting.arm].form
    network.eval()
    if setting.arm == "BlurPool":
        for block, shrinks in zip(BLOCKS, (8, 16), strict=True):
            put_blur_in(network.get_submodule(block), str(setting.choice), size // shrinks)
    elif form:
        layers, mode = list(LAYERS), form
        if form == "after-activation":
            mode = "after"
            layers = [
                fp.move_stride(
                    network, inputs[:1], f"{block}.depthwise_conv", behind=f"{block}.act1"
                )
                for block in BLOCKS
            ]
        batches = list(zip(inputs.split(100), labels.split(100), strict=True))
        fit = fp.ClosedFormPooling(alpha=float(setting.choice), alpha_unit="trace")
        fit.fit(network, batches, layer=layers, mode=mode).replace(network)
        return fit
    return None


def put_blur_in(block: nn.Module, blur: str, size: int) -> None:
    """As published: the convolution at stride 1, norm and activation, then the blur at stride 2."""
    convolution = block.depthwise_conv
    convolution.stride = (1, 1)
    shapes = ((size, size), (size // 2, size // 2))
    pooling = fp.baseline_pooling(blur, convolution.out_channels, *shapes)
    block.act1 = nn.Sequential(block.act1, pooling.to(convolution.weight.device))


def flip(images: Tensor, which: Tensor) -> Tensor:
    """The images, some upside down, some left to right: a cell looks alike from all sides."""
    down, across = which.to(images.device)[..., None, None, None]
    images = torch.where(down, images.flip(2), images)
    return torch.where(across, images.flip(3), images)


def run_fast(device: torch.device) -> torch.autocast:
    """bfloat16 on a GPU, float32 elsewhere."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


def measure_errors(scores: Tensor, labels: Tensor) -> dict[str, float]:
    """Percent wrong, and the mean over the degrees of percent wrong."""
    wrong = (scores.argmax(1) != labels).double()
    of_degree = [wrong[labels == degree].mean() for degree in labels.unique()]
    return {
        "error": 100 * float(wrong.mean()),
        "balanced": 100 * float(torch.stack(of_degree).mean()),
    }
