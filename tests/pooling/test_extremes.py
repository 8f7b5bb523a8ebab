"""Maps at the edges of what numbers can say: a right answer, or a word that names the reason.

The right answer is that of scipy on sums of long doubles.
"""

from __future__ import annotations

import math
import re
import warnings

import pytest
import torch
from torch import Tensor

from .extremes import Extreme, base, compare, fit

CASES: dict[str, Extreme] = {}
LONG, SINGLE, HALF, BRAIN = torch.float64, torch.float32, torch.float16, torch.bfloat16
TYPES = {"float64": LONG, "float32": SINGLE, "float16": HALF, "bfloat16": BRAIN}
maps, labels = base()
large, of_large = base((9, 8, 7), (12, 11))


def add(name: str, features: Tensor, of: Tensor = labels, **expected: object) -> None:
    add_batches(name, (features, of), **expected)


def add_batches(name: str, *batches: tuple[Tensor, Tensor], **expected: object) -> None:
    assert name not in CASES
    CASES[name] = Extreme(batches, **expected)


def scaled(*sizes: float) -> Tensor:
    """The maps with channels of these scales."""
    return maps * torch.tensor(sizes, dtype=LONG)[:, None, None]


# --- the scale of all channels

for kind, exponents in {
    "float64": (-140, -100, -40, -22, -10, 10, 18, 40, 100, 150),
    "float32": (-40, -36, -30, -22, -15, -10, 10, 15, 18),
    "float16": (-6, -4, 0, 3, 4),
    "bfloat16": (-37, -30, -22, 0, 10, 18),
}.items():
    for exponent in exponents:
        sized = (maps * 10.0**exponent).to(TYPES[kind])
        add(f"{kind} times 1e{exponent}", sized)
        add(f"{kind} times 1e{exponent} as it is", sized, sums={"normalize": False})
for exponent in (-150, -170, -310):
    add(f"float64 times 1e{exponent}", maps * 10.0**exponent, refused="vanish .* scale .* up")
add("float64 times 1e160", maps * 1e160, refused="squares overflow torch.float64")
add("float32 times 1e20", (maps * 1e20).float(), refused="squares overflow torch.float32")
add("float16 times 1e5", (maps * 1e5).half(), refused="got -inf in sample 0")

# --- channels far from zero

for exponent in (2, 4, 6, 8, 10, 12, 14):
    add(f"float64 at 1e{exponent}", maps + 10.0**exponent)
for exponent in (2, 4, 6):
    add(f"float32 at 1e{exponent}", (maps + 10.0**exponent).float())
for kind, level in {"float64": 1e12, "float32": 1e5, "float16": 500, "bfloat16": 50}.items():
    add(f"{kind} at 50", (maps + 50).to(TYPES[kind]))
    moved = maps.clone()
    moved[:, 1] += level
    add(f"{kind}, one channel at {level:g}", moved.to(TYPES[kind]))
add("float64 of scale 1e-22 at 1e-10", maps * 1e-22 + 1e-10)
add("float64 at 1e17", maps + 1e17, refused="channels that vary")
add("float32 at 1e9", (maps + 1e9).float(), refused="channels that vary")

# --- channels unlike each other, and such as do not vary

add("float64, channels of 1e-22, 1 and 1e18", scaled(1e-22, 1, 1e18))
add("float64, such channels as they are", scaled(1e-22, 1, 1e18), sums={"normalize": False})
add("float32, channels of 1e-22, 1 and 1e10", scaled(1e-22, 1, 1e10).float())
add("float16, channels of 1e-5, 1 and 1e4", scaled(1e-5, 1, 1e4).half())
for kind, dtype in TYPES.items():
    for level in (0.0, 0.1, -3e4):
        constant = maps.to(dtype, copy=True)
        constant[:, 1] = level
        add(f"{kind}, a channel constant at {level:g}", constant, left_out=[1])
    near = torch.tensor(0.1, dtype=dtype)
    flickering = maps.to(dtype, copy=True)
    flickering[:, 1] = torch.where(maps[:, 0] > 0, near, torch.nextafter(near, near * 2))
    told = r"1 channels vary by no more than rounding .*left out: \[1\]"
    add(f"{kind}, a channel of two neighbors", flickering, left_out=[1], warned=told)
rare = maps.clone()
rare[:, 1] = 7.0
rare[3, 1, 0, 0] += 1e-3
add("a channel that varies once", rare)
add("mostly the least value", maps.clamp(min=1.5))
add("one sample a million times the others", torch.cat((maps[:1] * 1e6, maps[1:])))
add("float32, one sample a thousandfold", torch.cat((maps[:1] * 1e3, maps[1:])).float())

# --- classes

for sizes in ((2, 2), (2, 30), (2, 1000), (500, 2, 2), (2, 2, 300, 3), (2,) * 40):
    for weighting in ("balanced", "frequency"):
        told = "40 times 2" if len(sizes) == 40 else " and ".join(map(str, sizes))
        add(f"{told} samples, {weighting}", *base(sizes), sums={"weighting": weighting})
add("a class of one sample", *base((14, 11, 1)), refused=r"fewer than two samples .* \{2: 1\}")
add("a class number left out", maps, labels * 2, refused="without gaps")
add("a single class", maps, labels * 0, refused="fewer than two samples")
mirrored, twice = torch.cat((maps, -maps)), torch.cat((labels, labels))
for kind in ("float64", "float32"):
    add(f"{kind}, classes of one mean", mirrored.to(TYPES[kind]), twice, noise="means of the class")
alike = maps[:3][labels]
add("samples of a class all alike", alike, refused="do not vary within the classes", warned="B is")
apart = labels[:, None, None, None]
for distance in (1e2, 1e4, 1e5, 1e6, 1e7):
    told = "near rounding" if distance > 1e5 else ""
    add(f"float64, classes {distance:g} apart", maps + distance * apart, noise=told)
for distance in (3.0, 10.0, 30.0, 1000.0):
    told = "near rounding .* float64" if distance > 10 else ""
    add(f"float32, classes {distance:g} apart", (maps + distance * apart).float(), noise=told)

# --- alphas, and B without full rank

few = base((2, 2), channels=1)
for alpha in (1e-8, 1e-6, 1e-3, 1.0, 1e6, 1e12):
    add(f"alpha {alpha:g}", maps, alpha=alpha)
    add(f"alpha {alpha:g}, B of rank 2", *few, alpha=alpha, solving={"components": 1})
for alpha in (1e100, 1e300):
    add(f"alpha {alpha:g}", maps, alpha=alpha, warned="fewer separate the classes")
add("alpha 1e-12", maps, alpha=1e-12, warned="alpha: got 1e-12 .* less than the 1e-08")
add("alpha 1e-12, B of rank 2", *few, alpha=1e-12, solving={"components": 1}, noise="less than the")
for alpha in (0.0, -1.0, math.nan, math.inf):
    add(f"alpha {alpha:g}", maps, alpha=alpha, refused="alpha: got")
for level in (0.0, 3.0):
    border = maps.clone()
    border[..., 0] = level
    add(f"a border of {level:g}", border)
for least in (1e-2, 1e-4, 1e-6, 1e-10):
    faint = maps.clone()
    faint[..., 1, 1] *= least
    add(f"a place of scale {least:g}", faint, noise="1 places vary by" if least < 1e-5 else "")
doubled = maps.clone()
doubled[..., 1, :] = doubled[..., 0, :]
add("two lines alike", doubled)
flat = maps.mean((2, 3), keepdim=True).expand_as(maps)
add("maps that are flat", flat, warned="fewer separate the classes")

# --- sizes and solvers

for shape, out in (
    ((1, 1), (1, 1)),
    ((1, 9), (1, 3)),
    ((9, 1), (3, 1)),
    ((4, 4), (4, 4)),
    ((4, 4), (1, 1)),
    ((5, 3), (2, 2)),
    ((7,), (3,)),
    ((2, 2, 2), (1, 1, 1)),
):
    components = min(2, math.prod(shape))
    add(f"{shape} to {out}", *base(shape=shape), out_shape=out, solving={"components": components})
steps = torch.logspace(-3, 0, 12 * 11, dtype=LONG).reshape(12, 11)
for solver in ("dense", "krylov", "arpack"):
    chosen = {"out_shape": (3, 2), "solving": {"solver": solver}}
    one = {"out_shape": (3, 2), "solving": {"solver": solver, "components": 1}}
    add(f"{solver}", large, of_large, **chosen)
    add(f"{solver}, few samples, alpha 1e-6", *base((2, 2), (12, 11), 1), alpha=1e-6, **one)
    add(f"{solver}, alpha 1e12", large, of_large, alpha=1e12, **chosen)
    add(f"{solver}, places of 1e-3 to 1", large * steps, of_large, **chosen)
    add(f"{solver}, scale 1e-22 at 1e-14", large * 1e-22 + 1e-14, of_large, **chosen)

# --- batches unlike each other, and how they lie in memory

first, rest = slice(0, 16), slice(16, None)
for level, dtype in ((1e4, SINGLE), (1e7, LONG)):
    moved = torch.cat((maps[first] * 0, maps[rest] + level)).to(dtype)
    add_batches(
        f"black first, then {level:g}", (moved[first], labels[first]), (moved[rest], labels[rest])
    )
for one, other in ((LONG, SINGLE), (SINGLE, LONG), (BRAIN, LONG), (LONG, HALF)):
    level = 1e4 if {one, other} == {LONG, SINGLE} else 10.0
    begin, end = (maps[first] + level).to(one), (maps[rest] + level).to(other)
    add_batches(f"{one}, then {other}", (begin, labels[first]), (end, labels[rest]))
for one, other in ((LONG, SINGLE), (SINGLE, LONG)):
    begin, end = (maps[first] + 1e10).to(one), (maps[rest] + 1e10).to(other)
    pairs = (begin, labels[first]), (end, labels[rest])
    add_batches(f"{one} at 1e10, then {other}", *pairs, refused="that vary", warned="than rounding")
add_batches("an empty batch first", (maps[:0], labels[:0]), (maps, labels))
add_batches("batches of one", *zip(maps.split(1), labels.split(1), strict=True))
add("channels last", maps.float().contiguous(memory_format=torch.channels_last))
add("every second pixel", maps.repeat_interleave(2, 3)[..., ::2])
add("one channel seen three times", maps[:, :1].expand(-1, 3, -1, -1))
add("maps with a gradient", maps.clone().requires_grad_())
for number in (math.nan, math.inf, -math.inf):
    wrong = maps.clone()
    wrong[3, 1, 2, 0] = number
    add(f"a number {number}", wrong, refused=f"got {number} in sample 3 .*channel 1, place 8")


@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_right_or_the_reason_is_named(name):
    case = CASES[name]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        if case.refused:
            with pytest.raises(ValueError, match=case.refused):
                fit(case)
        else:
            operator = fit(case)
    words = " | ".join(str(each.message) for each in told)
    reason = case.warned or case.noise
    assert re.search(reason, words) if reason else not words, words
    if not case.refused and not case.noise:
        cosines = compare(case, operator)
        assert cosines and min(cosines) >= 1 - 1e-6
