"""The figures in one place, by name; each function returns a matplotlib Figure and runs nothing."""

from foveapool.report.operator_figures import (
    ClassMaps,
    class_maps,
    eigenvalue_figure,
    feature_map_figure,
    operator_figure,
    radius_figure,
    separability_figure,
    spread,
)
from foveapool.report.robustness_figures import ratio_figure, read_ratios
from foveapool.report.study_figures import (
    alpha_figure,
    curves_figure,
    images_figure,
    poolings_figure,
)
from foveapool.report.style import save_figure

__all__ = [
    "ClassMaps",
    "alpha_figure",
    "class_maps",
    "curves_figure",
    "eigenvalue_figure",
    "feature_map_figure",
    "images_figure",
    "operator_figure",
    "poolings_figure",
    "radius_figure",
    "ratio_figure",
    "read_ratios",
    "save_figure",
    "separability_figure",
    "spread",
]
