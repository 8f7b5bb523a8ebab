"""How every figure looks and how it becomes a file; what is drawn is told in the files beside.

Made for one column of a paper. Lines differ in color, lightness, marker and dash, so that they
can be told apart in black and white and by color-blind eyes: the colors are those of Okabe and
Ito, the first ones far apart in lightness.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from foveapool._io import replace_file
from foveapool._suggest import how_to_install

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

COLUMN = 3.3  # inches
_SHORTEST = 12  # letters of a line in a legend
_LEGEND = 0.35  # inches: two lines, for which every figure has room
FORMATS = ("png", "pdf", "svg")
COLORS = ("#000000", "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)))
# Nearly black for negative and a middle red for positive: a grey print keeps the ends apart.
_SIGNED = ("#08214f", "#2166ac", "#92c5de", "#ffffff", "#fdc4a4", "#f0694a", "#d7261e")
SEQUENTIAL = "cividis"

TEXT, SMALL = 7.5, 7.0  # points
_DIGIT, _Y_AXIS = 0.65 * SMALL / 72, 0.45  # inches across
_LOOKS: dict[Any, Any] = {
    "font.size": TEXT,
    "axes.titlesize": TEXT,
    "axes.labelsize": TEXT,
    "legend.fontsize": SMALL,
    "figure.titlesize": TEXT,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.0,
    "lines.markersize": 3.5,
    "hatch.linewidth": 0.5,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    # Names of classes and runs are no formulas, whatever is in them.
    "text.parse_math": False,
}

_Given = ParamSpec("_Given")
_Drawn = TypeVar("_Drawn")


def with_style(draw: Callable[_Given, _Drawn]) -> Callable[_Given, _Drawn]:
    """Has a function draw in this style, whatever the caller's own settings are."""

    @wraps(draw)
    def within(*arguments: _Given.args, **options: _Given.kwargs) -> _Drawn:
        try:
            from matplotlib import rc_context
        except ImportError as error:
            raise ImportError(f"figures need matplotlib: {how_to_install('plot')}") from error
        with rc_context(_LOOKS):
            return draw(*arguments, **options)

    return within


def new_figure(width: float, height: float, laid_out: bool = True) -> Figure:
    """An empty figure, in inches; `laid_out` finds room for labels, else places are given."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained" if laid_out else None)


def axes_at(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes in inches from the upper left corner."""
    across, down = figure.get_size_inches()
    bounds = (left / across, 1 - (top + height) / down, width / across, height / down)
    return figure.add_axes(bounds)


def write_at(figure: Figure, left: float, top: float, text: str, **options: Any) -> None:
    """A line of text whose foot is `top` inches below the upper edge."""
    across, down = figure.get_size_inches()
    figure.text(left / across, 1 - top / down, text, va="baseline", **options)


def without_ticks(axes: Axes) -> Axes:
    """The same axes with a thin frame and nothing along it."""
    axes.set(xticks=[], yticks=[])
    for side in axes.spines.values():
        side.set_linewidth(0.4)
    return axes


def tidy_axes(axes: Axes, grid: bool = True) -> Axes:
    """The same axes with ticks of this style; ticks are made late and have to be told."""
    axes.tick_params(labelsize=SMALL, width=0.6, length=2.5, pad=2, which="major")
    axes.tick_params(width=0.4, length=1.5, which="minor")
    if grid:
        axes.grid(True, which="major", linewidth=0.4, color="0.85")
        axes.set_axisbelow(True)
    return axes


def line_style(number: int) -> dict[str, Any]:
    """The look of line `number`, as `plot` and `errorbar` take it; none comes twice below 56.

    >>> line_style(0)["color"], line_style(1)["marker"]
    ('#000000', 's')
    """
    return {
        "color": COLORS[number % len(COLORS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": DASHES[number % len(DASHES)],
    }


def signed_colors() -> Colormap:
    """Blue below zero, white at it, red above; the blue end is much the darker one."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("signed", list(_SIGNED))


def log_axis(axes: Axes, values: Sequence[float], label: str) -> None:
    """Makes x logarithmic, with a tick at each value and numbers where they have room."""
    axes.set_xscale("log")
    ticks = sorted(set(values))
    # Widths are known only when all is drawn: this is the panel's share less the y-axis and, at
    # both ends, matplotlib's margins, a twentieth of what the ticks span.
    inches = (_measure_panel_width(axes) - _Y_AXIS) / 1.1
    span = math.log(ticks[-1] / ticks[0])

    def apart(low: float, high: float) -> bool:
        letters = (len(f"{low:g}") + len(f"{high:g}")) / 2 + 0.5
        return low == high or math.log(high / low) / span * inches >= letters * _DIGIT

    # Both ends have their numbers; between them those that the ones to the right leave room for.
    numbered = ticks[-1:]
    for tick in ticks[-2::-1]:
        if apart(tick, numbered[-1]) and apart(ticks[0], tick):
            numbered.append(tick)
    axes.set_xticks(ticks, [f"{tick:g}" if tick in numbered else "" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(label)


def _measure_panel_width(axes: Axes) -> float:
    """Inches of the figure for each of the panels that stand side by side."""
    figure, place = axes.get_figure(root=True), axes.get_subplotspec()
    assert figure is not None and place is not None
    return figure.get_figwidth() / place.get_gridspec().ncols


def value_axis(panels: Sequence[Axes]) -> None:
    """Makes y logarithmic if what is drawn there spans more than a factor of three."""
    low = min(axes.dataLim.ymin for axes in panels)
    high = max(axes.dataLim.ymax for axes in panels)
    for axes in panels if 0 < 3 * low < high else ():
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(format_log_tick)
        axes.yaxis.set_minor_formatter(format_log_tick)


def format_log_tick(value: float, position: float = 0) -> str:
    """Numbers for a logarithmic axis: plain, and only 1, 2 and 5 of a decade."""
    return f"{value:g}" if f"{value:e}"[0] in "125" else ""


def legend_below(figure: Figure, panels: Iterable[Axes], columns: int = 3) -> None:
    """One legend for the lines of these panels, each name once, under the figure.

    Names too long for so many columns get fewer; one too long for the figure goes on below. The
    figure becomes taller by what does not fit into two lines: the panels keep their height.
    """
    found: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    longest = max(map(len, found), default=0)
    looks: dict[str, Any] = {"loc": "outside lower center", "columnspacing": 1.2}
    attempts = [(across, longest) for across in range(min(columns, len(found)), 0, -1)]
    attempts += [(1, letters) for letters in range(longest - 1, _SHORTEST, -1)]
    legend = None
    for across, letters in attempts:
        if legend is not None:
            legend.remove()
        names = [fill(name, letters) for name in found]
        legend = figure.legend(list(found.values()), names, ncols=across, **looks)
        if legend.get_window_extent().width <= figure.bbox.width:
            break
    if legend is not None:
        height = legend.get_window_extent().height / figure.dpi
        figure.set_figheight(figure.get_figheight() + max(0.0, height - _LEGEND))


def save_figure(
    figure: Figure, path: str | Path, formats: Sequence[str] = (), dpi: int = 300
) -> list[Path]:
    """Writes the figure as the ending of `path` says, or once for each of `formats`.

    The same figure gives the same bytes, so that one drawn again is no change. Returns the files.
    """
    from matplotlib import rc_context

    path = Path(path)
    wanted = list(formats) or [path.suffix.removeprefix(".").lower()]
    for form in wanted:
        if form not in FORMATS:
            raise ValueError(
                f"{path}: got the format {form!r}, wanted one of {', '.join(FORMATS)}; give the "
                "file such an ending, or name formats"
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    dates = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    # Only a format is an ending that others take the place of: 0.5 in a name is none.
    stem = path.with_suffix("") if path.suffix.removeprefix(".").lower() in FORMATS else path
    files = [stem.with_name(f"{stem.name}.{form}") if formats else path for form in wanted]
    for form, file in zip(wanted, files, strict=True):
        # Fonts that stay text in a PDF, and names in an SVG that are not drawn by lot.
        with (
            replace_file(file) as temporary,
            rc_context({**_LOOKS, "pdf.fonttype": 42, "svg.hashsalt": "foveapool"}),
        ):
            figure.savefig(temporary, format=form, dpi=dpi, metadata=dates[form])
    return files
