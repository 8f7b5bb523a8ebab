"""The metrics of CIFAR-10-C and CIFAR-10-P in one place, by name.

Pure functions, and two classes that take a model's answers batch by batch: `CorruptionErrors` and
`FlipRates`. Errors, flip probabilities and rates are fractions; the papers print percent.
"""

from foveapool.robustness.errors import (
    CorruptionErrors,
    CorruptionTable,
    average_over,
    corruption_error,
    error_rate,
    relative_corruption_error,
    unnormalized_ce,
)
from foveapool.robustness.flips import (
    FlipRates,
    FlipTable,
    average_over_levels,
    flip_probability,
    flip_rates,
    rank_changes,
    rank_classes,
    top5_distance,
    top5_distances,
    zipf_distance,
    zipf_distances,
)
from foveapool.robustness.names import (
    ALL_CORRUPTIONS,
    ALL_PERTURBATIONS,
    EVALUATION_TEN,
    EXTRA_CORRUPTIONS,
    GENERATOR_TEN,
    GEOMETRIC_CORRUPTIONS,
    GEOMETRIC_PERTURBATIONS,
    PERTURBATION_FILES,
    SEVERITIES,
    STANDARD_CORRUPTIONS,
    is_noise,
)

__all__ = [
    "ALL_CORRUPTIONS",
    "ALL_PERTURBATIONS",
    "EVALUATION_TEN",
    "EXTRA_CORRUPTIONS",
    "GENERATOR_TEN",
    "GEOMETRIC_CORRUPTIONS",
    "GEOMETRIC_PERTURBATIONS",
    "PERTURBATION_FILES",
    "SEVERITIES",
    "STANDARD_CORRUPTIONS",
    "CorruptionErrors",
    "CorruptionTable",
    "FlipRates",
    "FlipTable",
    "average_over",
    "average_over_levels",
    "corruption_error",
    "error_rate",
    "flip_probability",
    "flip_rates",
    "is_noise",
    "rank_changes",
    "rank_classes",
    "relative_corruption_error",
    "top5_distance",
    "top5_distances",
    "unnormalized_ce",
    "zipf_distance",
    "zipf_distances",
]
