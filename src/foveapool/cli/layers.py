"""`foveapool layers`: which layers of a network shrink its maps."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from typing import Annotated, Any

import torch
import typer
from torch import nn

from foveapool._io import parse_json
from foveapool.cli.options import user_errors
from foveapool.surgery.find import downsampling_layers
from foveapool.surgery.forward import get_first_line


def layers_command(
    network: Annotated[
        str,
        typer.Argument(
            help="MODULE:NAME or FILE.py:NAME of a network, or of what makes one. The module or "
            "file is run, as by python: name none that you do not trust."
        ),
    ],
    size: Annotated[
        str, typer.Option("--input", help="Channels, height and width of an image.")
    ] = "3x32x32",
    options: Annotated[
        str, typer.Option(help="JSON object of arguments for what makes the network.")
    ] = "{}",
) -> None:
    """Lists the layers that shrink a map, and what a pooling there would have to be.

    For example: foveapool layers foveapool.networks.resnet:PreActResNet18
    """
    with user_errors():
        model, example = make_network(network, options), torch.zeros(1, *parse_image_size(size))
        try:
            found = downsampling_layers(model, example)
        except Exception as error:  # a network of one's own may raise anything
            raise ValueError(
                f"network: {network} does not take an input of shape {tuple(example.shape)}: "
                f"{_describe_error(error)}; is --input right?"
            ) from error
    # A line a layer, however wide: names are there to be copied.
    typer.echo(str(found))


def make_network(network: str, options: str = "{}") -> nn.Module:
    """The network that MODULE:NAME or FILE.py:NAME stands for."""
    source, _, name = network.rpartition(":")
    if not source or not name:
        raise ValueError(f"network: got {network!r}, wanted MODULE:NAME or FILE.py:NAME")
    try:
        arguments = parse_json(options, "options")
    except ValueError as error:
        raise ValueError(f"options: got {options!r}, wanted a JSON object ({error})") from error
    if not isinstance(arguments, dict):
        raise ValueError(
            f"options: got {options!r}, wanted a JSON object of names and values, such as "
            '{"width": 64}'
        )
    module = _module(source)
    if not hasattr(module, name):
        raise ValueError(f"network: {source} has no {name!r}")
    value: Any = getattr(module, name)
    if arguments and isinstance(value, nn.Module):
        raise ValueError(
            f"options: got {options!r} for {network}, which is a network already and takes none; "
            "leave them out, or name the class or function that makes it"
        )
    try:
        model = value if isinstance(value, nn.Module) else value(**arguments)
    except Exception as error:  # what makes a network of one's own may raise anything
        raise ValueError(
            f"network: {network} cannot be made with {arguments}: {_describe_error(error)}; give "
            "its arguments by --options"
        ) from error
    if not isinstance(model, nn.Module):
        raise ValueError(f"network: {network} made a {type(model).__name__}, wanted an nn.Module")
    return model


def _describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {get_first_line(error)}"


def _module(source: str) -> Any:
    if not source.endswith(".py"):
        # As python -m would find it: from where the user stands.
        sys.path.insert(0, "")
        with _loading(source):
            return importlib.import_module(source)
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file, wanted one that makes a network")
    # As python FILE.py would run it: with what lies beside the file in reach.
    sys.path.insert(0, str(path.absolute().parent))
    name = f"network_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Where dataclasses, among others, look for the names in their annotations.
    sys.modules[name] = module
    with _loading(source):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _loading(source: str) -> Iterator[None]:
    """What a file of the user's own raises while it is loaded, as one line that says where."""
    try:
        yield
    except Exception as error:  # it may raise anything
        run = [each for each in extract_tb(error.__traceback__) if each.name == "<module>"]
        # An error of syntax tells its place itself.
        known = not run or isinstance(error, SyntaxError)
        where = "" if known else f" ({run[-1].filename}, line {run[-1].lineno})"
        raise ValueError(
            f"network: {source} cannot be loaded: {_describe_error(error)}{where}; mend it, or "
            "name another"
        ) from error


def parse_image_size(text: str) -> tuple[int, int, int]:
    """(channels, height, width) of CxHxW."""
    parts = text.lower().split("x")
    if len(parts) != 3 or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise ValueError(f"input: got {text!r}, wanted channels x height x width, such as 3x32x32")
    channels, height, width = map(int, parts)
    return channels, height, width
