"""Corruptions and perturbations of images as CIFAR-10-C and CIFAR-10-P have them, and metrics."""

from foveapool.robustness.corruptions import CORRUPTIONS, corrupt
from foveapool.robustness.evaluate import evaluate
from foveapool.robustness.perturbations import PERTURBATIONS, perturb, perturbed
from foveapool.robustness.result import RobustnessResult, mean_of

__all__ = [
    "CORRUPTIONS",
    "PERTURBATIONS",
    "RobustnessResult",
    "corrupt",
    "evaluate",
    "mean_of",
    "perturb",
    "perturbed",
]
