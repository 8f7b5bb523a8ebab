"""How long do fits, passes, layers, trainings and studies take, beside what others would do?"""

from __future__ import annotations

from collections.abc import Callable

from foveapool.records import BenchmarkRow
from foveapool.tabular import format_markdown
from tables.rows import name_machine, read_measurements

SOLVING = "seconds to solve"
WINDOWED = "windowed"
KEPT = "share of the whole map's "


def tabulate_peers() -> str:
    """The eigenproblems of one position: ours, and scipy's two ways."""
    rows = read_measurements("fit")
    lines = []
    for ours in (r for r in rows if (r.case, r.metric) == ("krylov", "seconds a place")):
        cells = [ours.maps, ours.alpha, f"{1e3 * ours.mean:.2f} ms"]
        for name in ("scipy eigh", "scipy eigs"):
            here = [r for r in rows if r.maps == ours.maps and r.alpha == ours.alpha]
            other = next(r for r in here if r.case == name)
            ratio = next(r for r in here if r.case == f"krylov / {name}")
            cells.append(f"{1e3 * other.mean:.1f} ms, **{ratio.mean:.1f} times**")
        lines.append(cells)
    header = [
        "map",
        "alpha",
        "foveapool, a place",
        "`scipy.linalg.eigh`",
        "`eigs`, the paper's way",
    ]
    return format_markdown(header, lines)


def tabulate_growth() -> str:
    """Seconds to solve by the sizes of the maps, a column a machine."""
    rows = read_solving()
    layers = sorted(
        {r.maps for r in rows}, key=lambda maps: (len(maps) > 20, int(maps[2:].split()[0]))
    )
    machines = sorted({name_machine(r) for r in rows}, key=len)
    lines = []
    for layer in layers:
        cells = [layer]
        for name in machines:
            here = [r for r in rows if r.maps == layer and name_machine(r) == name]
            cells.append(f"{here[0].mean:.3g} s" if here else "-")
        lines.append(cells)
    return format_markdown(["map", *machines], lines)


def read_solving() -> list[BenchmarkRow]:
    """The rows of whole solutions, by the sizes of the maps."""
    return [r for r in read_measurements("fit") if r.metric == SOLVING]


def tabulate_gram() -> str:
    """How near summing scatter comes to a bare matrix product."""
    shares = [r for r in read_measurements("fit") if r.metric == "share of matmul's rate"]
    cells: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in shares:
        cells.setdefault((name_machine(row), row.maps, row.batch), {})[row.case] = f"{row.mean:.2f}"
    lines = [[*key, each["products"], each["ScatterAccumulator"]] for key, each in cells.items()]
    return format_markdown(["machine", "maps", "batch", "products summed", "the whole pass"], lines)


def tabulate_agreement() -> str:
    """How far an operator of the GPU is from the CPU's."""
    rows = [r for r in read_measurements("fit") if r.metric == "largest difference CPU-GPU"]
    lines = [[r.maps, r.alpha, f"{r.mean:.1e}"] for r in rows]
    return format_markdown(["map", "alpha", "largest difference of a weight"], lines)


def tabulate_forward() -> str:
    """Forward and backward of the layer, beside the convolution and other poolings."""
    rows = read_measurements("forward")
    keys = dict.fromkeys((r.hardware, r.maps, r.batch, r.options) for r in rows)
    names = list(dict.fromkeys(r.case for r in rows))
    lines = []
    for key in keys:
        here = [r for r in rows if (r.hardware, r.maps, r.batch, r.options) == key]
        cells = [name_machine(here[0]), key[1], key[2], key[3].split(",")[0]]
        for name in names:
            of = {r.metric: r.mean for r in here if r.case == name}
            share = of["share of the convolution's time"]
            cells.append(f"{of['milliseconds']:.3g} ms ({share:.2f})")
        lines.append(cells)
    return format_markdown(["machine", "maps", "batch", "precision", *names], lines)


def tabulate_windowed() -> str:
    """A windowed layer at the size of a stem, beside the convolution that it stands for."""
    cases = ("strided convolution", WINDOWED)
    rows = [r for r in read_measurements("real-sizes") if r.case in cases]
    lines = []
    for key in dict.fromkeys((r.components, r.options, r.hardware) for r in rows):
        here = [r for r in rows if (r.components, r.options, r.hardware) == key]
        of = {(r.case, r.metric): r.mean for r in here}
        strided, own = (of[case, "milliseconds"] for case in cases)
        share = of[WINDOWED, "share of the convolution's time"]
        threads = "bound to cores" if key[2].endswith("bound to cores") else "free"
        times = f"{strided:.1f} ms", f"{own:.1f} ms", f"{share:.2f}"
        lines.append([key[0], *key[1].split(", "), threads, *times])
    header = ["components", "maps", "", "threads", "strided convolution", "windowed", "share"]
    return format_markdown(header, lines)


def tabulate_real_fits() -> str:
    """What a fit takes in networks for images of 224 x 224."""
    rows = [r for r in read_measurements("real-sizes") if r.network]
    return format_markdown(
        ["network", "layer", "map", "mode", "what", ""],
        [[r.network, r.layer or "-", r.maps, r.case, r.metric, f"{r.mean:.3g}"] for r in rows],
    )


def tabulate_windows() -> str:
    """What windows keep of the whole map's eigenvalue and S_b / S_w, mean over output places."""
    rows = [r for r in read_measurements("real-sizes") if r.metric.startswith(KEPT)]
    of = {(r.maps, r.alpha, r.case, r.metric): r.mean for r in rows}
    windows = list(dict.fromkeys(r.case for r in rows))
    lines = []
    for maps, alpha in dict.fromkeys((r.maps, r.alpha) for r in rows):
        cells = (
            [100 * of[maps, alpha, window, KEPT + each] for each in ("eigenvalue", "S_b / S_w")]
            for window in windows
        )
        lines.append([maps, alpha, *(f"{mu:.0f}, {ratio:.0f}" for mu, ratio in cells)])
    return format_markdown(["map", "alpha", *windows], lines)


def tabulate_passes() -> str:
    """The two passes of a fit, beside bare forward passes that end at the layer."""
    return format_markdown(
        ["layer", "what", "median"],
        [[r.layer, r.metric, f"{r.mean:.2f} +- {r.std:.2f}"] for r in read_measurements("passes")],
    )


def tabulate_training() -> str:
    """An epoch of three training loops."""
    rows = read_measurements("train")
    names = {"seconds an epoch of 50,000 images": "s an epoch", "images a second": "images / s"}
    header = list(dict.fromkeys(r.metric for r in rows))
    lines = []
    for key in dict.fromkeys((r.network, r.options) for r in rows):
        own = {r.metric: r for r in rows if (r.network, r.options) == key}
        lines.append([*key, *(_digits(own[m].mean) if m in own else "-" for m in header)])
    return format_markdown(["network", "loop", *(names.get(m, m) for m in header)], lines)


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def tabulate_study() -> str:
    """Trials an hour, one or several at once."""
    rows = read_measurements("study")
    hourly = {row.options: row.mean for row in rows if row.metric == "trials an hour"}
    one = next(row for row in rows if row.metric == "seconds a trial")
    lines = [
        (place, f"{mean:,.0f}", f"{mean / hourly['1 at once']:.2f}")
        for place, mean in hourly.items()
    ]
    table = format_markdown(("trials", "an hour", "times one at a time"), lines)
    return f"{table}\n\nOne at a time: {one.mean:.2f} s a trial."


TABLES: dict[str, Callable[[], str]] = {
    "peers": tabulate_peers,
    "growth": tabulate_growth,
    "gram": tabulate_gram,
    "agreement": tabulate_agreement,
    "forward": tabulate_forward,
    "windowed": tabulate_windowed,
    "real_fits": tabulate_real_fits,
    "windows": tabulate_windows,
    "passes": tabulate_passes,
    "training": tabulate_training,
    "study_speed": tabulate_study,
}
