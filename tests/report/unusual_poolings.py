"""Choices of a pooling that do not go without saying, one at a time."""

UNUSUAL = (
    {"normalize": False},
    {"weighting": "frequency"},
    {"center": "aligned"},
    {"sign": "sum"},
    {"class_cap": 30},
    {"class_cap": None},
    {"window": 2},
)
