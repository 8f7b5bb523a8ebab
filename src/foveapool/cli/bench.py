"""`foveapool bench`: what fitting and pooling cost on this machine, in a minute."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Annotated, Any

import torch
import typer
from torch import nn

from foveapool.cli.options import Device, user_errors
from foveapool.pooling.accumulate import compute_scatter
from foveapool.pooling.module import LinearPool2d
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solve import solve_pooling
from foveapool.training.parallel import choose_device

# Channels and size of the maps before the CNN's three poolings.
LAYERS = ((64, 32), (128, 16), (256, 8))


def bench_command(
    images: Annotated[int, typer.Option(help="How many maps to sum the scatter of.", min=40)] = 500,
    batch: Annotated[int, typer.Option(help="Maps of one forward pass.", min=1)] = 64,
    device: Device = None,
) -> None:
    """Times scatter, solving and the layer at the CNN's three layers, each several times.

    The last column is forward and backward of the frozen layer against the strided convolution.
    """
    from rich.console import Console
    from rich.table import Table

    with user_errors():
        chosen = choose_device(device)
        table = Table("maps", "scatter, s", "solving, s", "layer / convolution")
        for channels, size in LAYERS:
            figures = _row(channels, size, images, batch, chosen)
            table.add_row(f"{channels} x {size} x {size}", *figures)
    Console().print(table)


def _row(
    channels: int, size: int, images: int, batch: int, device: torch.device
) -> tuple[str, str, str]:
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(images, channels, size, size, generator=generator).to(device)
    labels = torch.arange(images, device=device) % 10
    # Neighbors alike, classes apart: nearer to real maps than plain noise.
    maps = nn.functional.avg_pool2d(maps, 3, 1, 1) + labels[:, None, None, None] * 0.01
    scatter: Scatter = compute_scatter(maps, labels)
    half = (size // 2, size // 2)
    pool = LinearPool2d(
        solve_pooling(scatter, half).weight, scatter.mean, in_shape=(size, size), out_shape=half
    ).to(device)
    convolution = nn.Conv2d(channels, 2 * channels, 3, 2, 1, bias=False).to(device)
    x = maps[:batch].clone().requires_grad_()
    # Side by side: what slows the machine for a moment slows both.
    ratios = [_seconds(_passes(pool, x)) / _seconds(_passes(convolution, x)) for _ in range(7)]
    return (
        f"{_seconds(lambda: compute_scatter(maps, labels)):.3f}",
        f"{_seconds(lambda: solve_pooling(scatter, half)):.3f}",
        f"{statistics.median(ratios):.2f}",
    )


def _passes(layer: nn.Module, x: torch.Tensor) -> Callable[[], Any]:
    def step() -> Any:
        y = layer(x)
        return torch.autograd.grad(y, [x, *layer.parameters()], torch.ones_like(y))

    return step


def _seconds(work: Callable[[], Any]) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begin
