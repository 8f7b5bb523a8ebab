"""Small things to corrupt: pictures of 16 x 16 pixels with some structure, and what judges them."""

import torch
from torch import nn


def toy_images(count=24, side=16, seed=0):
    """uint8 (n, H, W, 3): smooth blobs under noise, from dark to bright."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 3, 4, 4, generator=generator)
    smooth = nn.functional.interpolate(coarse, size=side, mode="bilinear")
    noise = 0.1 * torch.rand(count, 3, side, side, generator=generator)
    return ((0.9 * smooth + noise) * 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def toy_labels(count=24):
    return torch.arange(count) % 4


def toy_normalize(images):
    """From (n, 3, H, W)."""
    return (images.float() - 128) / 64


def toy_model(seed=0, classes=4, side=16):
    """Random weights, batch norm in it: its mode matters."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * ((side - 1) // 2) ** 2, classes),
    )
