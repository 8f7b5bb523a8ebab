"""`make demo`: fits a pooling on the maps of a small convolution, says what it found, draws it."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from foveapool.data.segment_digits import segment_digits
from foveapool.pooling.accumulate import compute_scatter
from foveapool.pooling.report import pooling_report
from foveapool.pooling.solve import solve_pooling
from foveapool.report.figures import operator_figure


def convolution_maps(images: Tensor, channels: int = 32, halvings: int = 0) -> Tensor:
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


def main() -> None:
    """Runs the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=3000, help="how many scenes to draw")
    parser.add_argument("--alpha", type=float, default=25.0, help="strength of the locality")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for the files")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    clock = time.perf_counter()

    def say(text: str) -> None:
        print(f"[{time.perf_counter() - clock:5.1f} s] {text}", flush=True)

    say(f"drawing {options.images} street-like scenes, 32 x 32, ten classes")
    images, labels = segment_digits(options.images, seed=0)
    say("running a 3 x 3 convolution with 32 channels over them")
    maps = convolution_maps(images)
    say("accumulating between-class and within-class scatter, 1024 x 1024")
    scatter = compute_scatter(maps, labels, num_classes=10)
    say("what each alpha would reach:")
    print(pooling_report(scatter, (16, 16), alphas=(5, 25, 100, 400)))
    say(f"solving 256 eigenproblems at alpha {options.alpha:g}")
    operator = solve_pooling(scatter, (16, 16), alpha=options.alpha)
    say("found:")
    print(operator.summary())
    pooled = operator.module()(maps[:8])
    say(f"as a layer it turns {tuple(maps[:8].shape)} into {tuple(pooled.shape)}")
    operator.save(options.out / "operator.safetensors")
    operator_figure(operator).savefig(options.out / "operator.png", dpi=110)
    say(f"the operator: {options.out / 'operator.safetensors'}")
    say(f"its picture:  {options.out / 'operator.png'}")


if __name__ == "__main__":
    main()
