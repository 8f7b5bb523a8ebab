"""Docstrings of what users import say what goes in, what comes out, and show it.

ruff checks the form of all docstrings, but takes every name without an underscore for public. What
is public here is what `foveapool` exports, and what README and docs import from its modules.
"""

import ast
import dataclasses
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import FunctionType

import pytest

import foveapool
import foveapool.robustness

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

# Named in the docs' text, not in an example.
NAMED = ("foveapool.report.page.write_page", "foveapool.report.examples.choose_examples")
# What these functions return.
RETURNED = (
    "foveapool.data.images.Images",
    "foveapool.report.examples.Examples",
    "foveapool.tabular.Table",
)
# torch calls these: a call of the layer, and a print of it, show them.
CALLED_BY_TORCH = {"forward", "extra_repr"}

HEADING = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Example):$", re.M)


def imported(text: str) -> set[str]:
    """What a page imports from modules of the package, with the modules' names."""
    found = re.findall(r"^ *from (foveapool\.[\w.]+) import ([\w, ]+)$", text, flags=re.M)
    return {f"{module}.{name}" for module, names in found for name in re.split(r", *", names)}


def public_objects() -> dict[str, object]:
    names = set().union(*(imported(page.read_text("utf-8")) for page in PAGES), NAMED, RETURNED)
    for package in (foveapool, foveapool.robustness):
        names |= {f"{package.__name__}.{name}" for name in package.__all__}
    objects = {}
    for name in sorted(names):
        module, _, attribute = name.rpartition(".")
        found = getattr(importlib.import_module(module), attribute)
        if inspect.isfunction(found) or inspect.isclass(found):
            objects[f"{found.__module__}.{found.__qualname__}"] = found
    return objects


def sections(docstring: str | None) -> dict[str, str]:
    """The parts of a docstring by heading, those before the first one under ""."""
    parts = HEADING.split(inspect.cleandoc(docstring or ""))
    return {"": parts[0].strip(), **dict(zip(parts[1::2], parts[2::2], strict=True))}


def entries(section: str) -> set[str]:
    """The names that a section explains, one at the beginning of each entry."""
    return set(re.findall(r"^\*{0,2}(\w+): \S", textwrap.dedent(section).strip("\n"), flags=re.M))


def raises(function: object) -> bool:
    """Whether the function itself, not what it calls, raises."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (TypeError, OSError):
        return False  # a dataclass's constructor has no source
    return any(isinstance(node, ast.Raise) and node.exc for node in ast.walk(tree))


def returns(function: FunctionType) -> bool:
    return inspect.signature(function).return_annotation not in (None, "None")


def unexplained(section: str, parameters: Iterable[str]) -> list[str]:
    explained, wanted = entries(section), set(parameters) - {"self", "cls"}
    missing = [f"{name} is not explained" for name in sorted(wanted - explained)]
    return missing + [f"{name} is explained, but not there" for name in sorted(explained - wanted)]


def is_shown(name: str, docstring: str | None, scope: Mapping[str, object]) -> bool:
    """Whether a docstring shows `name`, or sends its reader to one of `scope` that does."""
    parts = sections(docstring)
    if ">>> " in parts.get("Example", ""):
        return True
    others = re.findall(r"`(\w+)` has an example", parts[""])
    examples = [sections(scope[other].__doc__).get("Example", "") for other in others]
    return any(uses(name, example) for example in examples)


def uses(name: str, example: str) -> bool:
    return re.search(rf"\b{name}\(|\.{name}\b", example) is not None


def missing_in_function(function: FunctionType, scope: Mapping[str, object]) -> list[str]:
    """What the docstring of a function or method lacks; `scope` has those that it may refer to."""
    parts = sections(function.__doc__)
    found = [] if parts[""].partition("\n")[0].endswith(".") else ["no summary in one sentence"]
    found += unexplained(parts.get("Args", ""), inspect.signature(function).parameters)
    if returns(function) and not {"Returns", "Yields"} & set(parts):
        found.append("no Returns")
    if raises(function) and "Raises" not in parts:
        found.append("no Raises")
    if not is_shown(function.__name__, function.__doc__, scope):
        found.append("no Example")
    return found


def missing_in_class(cls: type) -> list[str]:
    """What the docstring of a class lacks, and those of its public methods and properties."""
    parts, own = sections(cls.__doc__), vars(cls)
    example = parts.get("Example", "")
    found = [] if parts[""].partition("\n")[0].endswith(".") else ["no summary in one sentence"]
    if ">>> " not in example:
        found.append("no Example")
    if dataclasses.is_dataclass(cls):
        fields = [field.name for field in dataclasses.fields(cls)]
        found += unexplained(parts.get("Attributes", ""), fields)
    else:
        # A class that is made as another public one says so, and leaves its arguments to that.
        bases = (base.__name__ for base in cls.__mro__[1:] if base in vars(foveapool).values())
        if "__init__" in own or not any(f"`{base}`" in parts[""] for base in bases):
            found += unexplained(parts.get("Args", ""), inspect.signature(cls).parameters)
    checks = [own[name] for name in ("__init__", "__post_init__") if name in own]
    if any(map(raises, checks)) and "Raises" not in parts:
        found.append("no Raises")
    for name, member in own.items():
        if name.startswith("_") or not isinstance(member, FunctionType | classmethod | property):
            continue
        if isinstance(member, property):
            lacks = [] if sections(member.__doc__)[""] else ["no summary in one sentence"]
            lacks += [] if is_shown(name, member.__doc__, own) else ["no Example"]
        else:
            lacks = missing_in_function(getattr(member, "__func__", member), own)
        # The example of the class may show its members, too.
        if uses(name, example) or name in CALLED_BY_TORCH:
            lacks = [each for each in lacks if each != "no Example"]
        found += [f"{name}: {each}" for each in lacks]
    return found


def missing_in(found: object) -> list[str]:
    if inspect.isclass(found):
        return missing_in_class(found)
    return missing_in_function(found, vars(inspect.getmodule(found)))


OBJECTS = public_objects()


@pytest.mark.parametrize("name", OBJECTS)
def test_a_public_docstring_is_complete(name):
    assert not missing_in(OBJECTS[name])


def test_what_the_docs_use_is_public_too():
    text = "import torch\nfrom foveapool.data.street_digits import make_street_digits\n"
    assert imported(text) == {"foveapool.data.street_digits.make_street_digits"}
    text = "from foveapool.robustness import average_results, evaluate"
    assert imported(text) == {
        "foveapool.robustness.evaluate",
        "foveapool.robustness.average_results",
    }
    assert {"foveapool.data.street_digits.make_street_digits"} < set(OBJECTS)


def undocumented(size: int, *, scale: float = 1.0) -> float:
    raise ValueError(size * scale)


def half_documented(size: int, scale: float = 1.0) -> float:
    """Multiplies.

    Args:
        size: How many.
        factor: Gone since.

    Returns:
        The product.
    """
    return size * scale


class Bare:
    """Holds a size."""

    def __init__(self, size: int) -> None:
        self.size = size

    def area(self) -> int:
        return self.size**2

    @property
    def side(self) -> int:
        return self.size


@dataclasses.dataclass
class Fields:
    """Holds a size.

    Example:
        >>> Fields(2).size
        2
    """

    size: int


@pytest.mark.parametrize(
    ("thing", "wanted"),
    [
        (
            undocumented,
            [
                "no summary in one sentence",
                "scale is not explained",
                "size is not explained",
                "no Returns",
                "no Raises",
                "no Example",
            ],
        ),
        (
            half_documented,
            ["scale is not explained", "factor is explained, but not there", "no Example"],
        ),
        (
            Bare,
            [
                "no Example",
                "size is not explained",
                "area: no summary in one sentence",
                "area: no Returns",
                "area: no Example",
                "side: no summary in one sentence",
                "side: no Example",
            ],
        ),
        (Fields, ["size is not explained"]),
    ],
)
def test_what_is_missing_is_noticed(thing, wanted):
    assert missing_in(thing) == wanted
