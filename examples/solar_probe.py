"""What two cores can do: the pretrained network stays as it is, and a linear layer reads it.

A pooling is put in as for fine-tuning, with the closed form fitted on the training images. Then the
last maps' means are computed once, and a logistic regression tells the degrees apart.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from efficientnet_lite import EfficientNetLite0, build_pretrained
from solar_data import DEGREES, SolarCells
from solar_training import ARMS, BLOCKS, Say, Setting, measure_errors, put_in, to_inputs
from torch import Tensor, nn

LOWER = int(BLOCKS[0].split(".")[1])  # blocks before the first pooling: they are the same for all
ITERATIONS = 300
HELD = 24  # means of settings that are kept, 13 MB each


class Probe:
    """Judges settings by a linear layer; what several of them share is computed once."""

    def __init__(self, cells: SolarCells, images: Tensor) -> None:
        self.cells, self.size = cells, images.shape[-1]
        self.labels = cells.photographs.labels.to(images.device)
        lower = cut_lower_part(self._build(images.device))
        with torch.no_grad():
            self.maps = torch.cat([lower(to_inputs(some)) for some in images.split(50)])
        self._means: dict[tuple[object, ...], Tensor] = {}

    def __call__(
        self, setting: Setting, parts: tuple[Tensor, Tensor], say: Say = lambda done: None
    ) -> dict[str, float]:
        """Percent wrong, and the mean over the four degrees of percent wrong."""
        train, test = (part.to(self.maps.device) for part in parts)
        means = self._compute_means(setting, train, say).double()
        scores = fit_linear(means[train], self.labels[train], setting.rate)(means[test])
        say(1.0)
        return measure_errors(scores, self.labels[test])

    def _build(self, device: torch.device) -> EfficientNetLite0:
        return build_pretrained(self.cells.weights, len(DEGREES), grey=True).to(device).eval()

    def _compute_means(self, setting: Setting, train: Tensor, say: Say) -> Tensor:
        """Of the last maps (n, 1280), of all photographs."""
        fitted_on = tuple(train.tolist()) if ARMS[setting.arm].form else ()
        key = (setting.arm, setting.choice, fitted_on)
        if key not in self._means:
            network = self._build(self.maps.device)
            cut_lower_part(network)
            network.fc = nn.Identity()
            put_in(network, setting, self.maps[train], self.labels[train], self.size)
            pieces, found = self.maps.split(50), []
            with torch.no_grad():
                for number, piece in enumerate(pieces):
                    found.append(network(piece))
                    say(number / len(pieces))
            if len(self._means) == HELD:
                # The oldest that was fitted on a split: the others serve all splits.
                del self._means[next((each for each in self._means if each[2]), key)]
            self._means[key] = torch.cat(found)
        return self._means[key]


def cut_lower_part(network: EfficientNetLite0) -> nn.Sequential:
    """Takes out what comes before the first pooling; the network then goes on from its maps."""
    lower = nn.Sequential(network.conv_stem, network.bn0, network.act0, *network.blocks[:LOWER])
    network.conv_stem = network.bn0 = network.act0 = nn.Identity()
    for number in range(LOWER):
        network.blocks[number] = nn.Identity()
    return lower


def fit_linear(features: Tensor, labels: Tensor, penalty: float) -> nn.Module:
    """Logistic regression of features that are scaled alike, with that penalty on its weights."""
    deviation, mean = torch.std_mean(features, 0)
    scaled = (features - mean) / deviation.clamp_min(1e-6)
    linear = nn.Linear(features.shape[1], len(DEGREES)).double().to(features.device)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    optimizer = torch.optim.LBFGS(
        linear.parameters(), max_iter=ITERATIONS, line_search_fn="strong_wolfe"
    )

    def compute_loss() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(linear(scaled), labels)
        loss = loss + penalty / 2 * linear.weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(compute_loss)
    with torch.no_grad():
        linear.weight /= deviation.clamp_min(1e-6)
        linear.bias -= linear.weight @ mean
    return linear
