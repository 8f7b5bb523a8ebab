"""Corruptions and perturbations of images as CIFAR-10-C and CIFAR-10-P have them, and metrics."""

from foveapool.robustness.corruptions import CORRUPTIONS, corrupt
from foveapool.robustness.evaluate import evaluate
from foveapool.robustness.perturbations import PERTURBATIONS, iterate_perturbed, perturb
from foveapool.robustness.result import RobustnessResult, average_results

__all__ = [
    "CORRUPTIONS",
    "PERTURBATIONS",
    "RobustnessResult",
    "average_results",
    "corrupt",
    "evaluate",
    "iterate_perturbed",
    "perturb",
]
