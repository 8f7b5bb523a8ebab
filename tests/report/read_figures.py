"""What a figure shows, read back from it: for tests of figures only."""

from itertools import pairwise
from unittest.mock import patch

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

SMALLEST = 6.5  # points
ROUNDING = 1.0  # pixels


def points(axes):
    """The labeled lines of axes: label to [(x, y), ...]."""
    found = {}
    for line in axes.lines:
        if not line.get_label().startswith("_"):
            found[line.get_label()] = list(zip(*line.get_data(), strict=True))
    for bars in axes.containers:
        line = bars.lines[0] if hasattr(bars, "has_yerr") else None
        if line is not None and not bars.get_label().startswith("_"):
            found[bars.get_label()] = list(zip(*line.get_data(), strict=True))
    return found


def spreads(axes):
    """Half the length of each error bar, by the label of its line."""
    return {
        bars.get_label(): [(y2 - y1) / 2 for (_, y1), (_, y2) in bars.lines[2][0].get_segments()]
        for bars in axes.containers
        if getattr(bars, "has_yerr", False)
    }


def images(figure):
    """The pictures of a figure without its scales, in the order in which they were drawn."""
    return [axes.images[0] for axes in figure.axes if axes.images]


def texts(figure):
    """All that is written, tick labels among it, but those of ticks that are out of sight."""
    written = []
    draw = Text.draw

    def noted(self, renderer):
        if self.get_visible() and self.get_text():
            written.append(self)
        draw(self, renderer)

    with patch.object(Text, "draw", noted):
        FigureCanvasAgg(figure).draw()
    return written


def assert_legible(figure):
    """At a column's width: no letter too small or cut off, no numbers that run together."""
    assert figure.get_figwidth() <= 3.3 + 1e-9
    written = texts(figure)
    for each in written:
        assert each.get_fontsize() >= SMALLEST, each
        box = each.get_window_extent()
        page = figure.bbox
        assert box.x0 >= page.x0 - ROUNDING and box.x1 <= page.x1 + ROUNDING, each
        assert box.y0 >= page.y0 - ROUNDING and box.y1 <= page.y1 + ROUNDING, each
    for axes in figure.axes:
        labels = [text for text in axes.get_xticklabels() if text in written]
        boxes = sorted((text.get_window_extent() for text in labels), key=lambda box: box.x0)
        for left, right in pairwise(boxes):
            assert left.x1 < right.x0, (axes.get_xlabel(), left, right)
