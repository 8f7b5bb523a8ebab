"""Networks that we did not write, small enough to be fitted in a second, and images for them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import transformers
from torch import Tensor, nn

SIZE, CLASSES = 16, 3

Make = Callable[[], nn.Module]


def _resnet() -> nn.Module:
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"
    )
    return transformers.ResNetForImageClassification(config)


def _bottleneck_resnet() -> nn.Module:
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[16, 32], depths=[1, 1], downsample_in_first_stage=True
    )
    return transformers.ResNetForImageClassification(config)


def _regnet() -> nn.Module:
    config = transformers.RegNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], groups_width=4
    )
    return transformers.RegNetForImageClassification(config)


def _convnext() -> nn.Module:
    config = transformers.ConvNextConfig(
        hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, patch_size=2
    )
    return transformers.ConvNextForImageClassification(config)


def _convnext_v2() -> nn.Module:
    config = transformers.ConvNextV2Config(
        hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, patch_size=2
    )
    return transformers.ConvNextV2ForImageClassification(config)


def _mobilenet_v1() -> nn.Module:
    config = transformers.MobileNetV1Config(depth_multiplier=0.25, min_depth=4)
    return transformers.MobileNetV1ForImageClassification(config)


def _mobilenet_v2() -> nn.Module:
    config = transformers.MobileNetV2Config(
        depth_multiplier=0.25, min_depth=4, depth_divisible_by=4, finegrained_output=False
    )
    return transformers.MobileNetV2ForImageClassification(config)


def _efficientnet() -> nn.Module:
    config = transformers.EfficientNetConfig(
        width_coefficient=0.25,
        depth_coefficient=0.1,
        in_channels=[32, 16, 24],
        out_channels=[16, 24, 40],
        kernel_sizes=[3, 3, 5],
        strides=[1, 2, 2],
        num_block_repeats=[1, 1, 1],
        expand_ratios=[1, 4, 4],
        hidden_dim=320,
    )
    return transformers.EfficientNetForImageClassification(config)


def _bit() -> nn.Module:
    config = transformers.BitConfig(
        embedding_size=8, hidden_sizes=[16, 32], depths=[1, 1], num_groups=4
    )
    return transformers.BitForImageClassification(config)


def _poolformer() -> nn.Module:
    config = transformers.PoolFormerConfig(
        hidden_sizes=[8, 16],
        depths=[1, 1],
        num_encoder_blocks=2,
        patch_sizes=[3, 3],
        strides=[2, 2],
        padding=[1, 1],
    )
    return transformers.PoolFormerForImageClassification(config)


def _segformer() -> nn.Module:
    config = transformers.SegformerConfig(
        hidden_sizes=[8, 16],
        depths=[1, 1],
        num_encoder_blocks=2,
        patch_sizes=[3, 3],
        strides=[2, 2],
        sr_ratios=[2, 1],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
    )
    return transformers.SegformerForImageClassification(config)


def _focalnet() -> nn.Module:
    config = transformers.FocalNetConfig(
        image_size=SIZE,
        patch_size=2,
        embed_dim=8,
        depths=[1, 1],
        focal_levels=[1, 1],
        focal_windows=[3, 3],
    )
    return transformers.FocalNetForImageClassification(config)


def _swin() -> nn.Module:
    config = transformers.SwinConfig(
        image_size=SIZE, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=4
    )
    return transformers.SwinForImageClassification(config)


def _average_pooled() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(inplace=True),
        nn.AvgPool2d(3, 2, 1, ceil_mode=True),
        nn.Conv2d(6, 12, 3, padding="valid", stride=2),
        nn.BatchNorm2d(12),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, CLASSES),
    )


def _lp_pooled() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 4, stride=(2, 1), padding=1, padding_mode="reflect"),
        nn.GELU(),
        nn.LPPool2d(2, 2),
        nn.Conv2d(6, 8, 1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d((2, 3)),
        nn.Flatten(),
        nn.Linear(48, CLASSES),
    )


NETWORKS: dict[str, Make] = {
    "resnet": _resnet,
    "bottleneck-resnet": _bottleneck_resnet,
    "regnet": _regnet,
    "convnext": _convnext,
    "convnext-v2": _convnext_v2,
    "mobilenet-v1": _mobilenet_v1,
    "mobilenet-v2": _mobilenet_v2,
    "efficientnet": _efficientnet,
    "bit": _bit,
    "poolformer": _poolformer,
    "segformer": _segformer,
    "focalnet": _focalnet,
    "average-pooled": _average_pooled,
    "lp-pooled": _lp_pooled,
}
TOKEN_NETWORKS: dict[str, Make] = {"swin": _swin}


def images(count: int = 48, size: int = SIZE) -> tuple[Tensor, Tensor]:
    """Noise with a picture of its class in it."""
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % CLASSES
    classes = torch.randn(CLASSES, 3, size, size, generator=random)
    noise = torch.randn(count, 3, size, size, generator=random)
    return noise + nn.functional.avg_pool2d(classes, 3, 1, 1)[labels], labels


def batches(count: int = 48, batch: int = 16, size: int = SIZE) -> list[tuple[Tensor, Tensor]]:
    """The same as a loader."""
    pictures, labels = images(count, size)
    return list(zip(pictures.split(batch), labels.split(batch), strict=True))


def network(make: Make, seed: int = 0) -> nn.Module:
    """A network with random weights, whose batch-norms know what passes through them."""
    torch.manual_seed(seed)
    model = make()
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            # Their own start, 0.02, lets the signal of an untrained network die on its way.
            nn.init.kaiming_normal_(module.weight)
        if isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            module.momentum = None  # the average over all batches
    with torch.no_grad():
        for pictures, _ in batches():
            model.train()(pictures)
    return model.eval()


def answer(model: nn.Module, pictures: Tensor) -> Tensor:
    """The class scores, whichever way the network hands them out."""
    given = model(pictures)
    return given if isinstance(given, Tensor) else given.logits
