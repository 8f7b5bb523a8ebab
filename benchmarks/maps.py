"""The maps that benchmarks work on: random convolutions over street digits."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foveapool.data.street_digits import make_street_digits


def street_maps(
    count: int,
    size: int = 32,
    halvings: int = 0,
    channels: int = 64,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """Maps (count, C, size, size) and labels; the images are larger by the halvings."""
    scenes = make_street_digits(count, seed, size * 2**halvings)
    images = scenes.images.to(device).float()
    images -= images.mean((1, 2, 3), keepdim=True)
    images /= images.std((1, 2, 3), keepdim=True).clamp(min=1)
    return convolution_maps(images, channels, halvings), scenes.labels.to(device)


def convolution_maps(images: Tensor, channels: int, halvings: int) -> Tensor:
    """Maps of random convolutions with ReLU, `halvings` of them with stride 2; seed fixed."""
    generator = torch.Generator().manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1), nn.ReLU()]
    for i in range(halvings):
        width = channels * 2**i
        layers += [nn.Conv2d(width, 2 * width, 3, 2, 1), nn.InstanceNorm2d(2 * width), nn.ReLU()]
    network = nn.Sequential(*layers)
    with torch.no_grad():
        for parameter in network.parameters():
            bound = parameter[0].numel() ** -0.5 if parameter.dim() > 1 else 0.1
            parameter.uniform_(-bound, bound, generator=generator)
        network.to(images.device)
        return torch.cat([network(part) for part in images.split(256)])
