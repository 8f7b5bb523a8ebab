"""`foveapool train`: one network on one data set, into one run folder."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from foveapool._io import check_folder_place, write_text
from foveapool.cli.options import OWN_DATA, DataRoot, Device, user_errors
from foveapool.data.registry import NAMES, check_data_name, load_data
from foveapool.networks import NETWORKS, build_network, check_network_options
from foveapool.study.loading import RUN_NOTE
from foveapool.training.loop import train
from foveapool.training.metrics import Progress, open_progress_bar
from foveapool.training.parallel import Workers, choose_device, join_torchrun
from foveapool.training.recipe import (
    RECIPES,
    Recipe,
    get_default_recipe,
    get_paper_recipe,
    get_recipe,
    read_recipe,
)


def train_command(
    network: Annotated[str, typer.Argument(help=f"Which network: {', '.join(NETWORKS)}.")],
    data: Annotated[str, typer.Argument(help=f"Which data: {', '.join(NAMES)}. {OWN_DATA}")],
    out: Annotated[Path, typer.Option(help="The run folder: checkpoint and metrics.")],
    recipe: Annotated[
        str | None,
        typer.Option(
            help=f"{', '.join(RECIPES)} or a TOML file; the paper's for this data if not "
            "given, that for SVHN for data of your own."
        ),
    ] = None,
    optimizer: Annotated[str | None, typer.Option(help="adam or sgd.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate at the start.")] = None,
    epochs: Annotated[int | None, typer.Option(help="How often to see all images.")] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Images a step, all GPUs together.")
    ] = None,
    momentum: Annotated[float | None, typer.Option(help="SGD's momentum, Adam's beta.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay.")] = None,
    milestones: Annotated[
        str | None,
        typer.Option(
            help="Epochs at which the rate drops, such as 150,250; the recipe's, moved in "
            "proportion to --epochs, if not given."
        ),
    ] = None,
    gamma: Annotated[float | None, typer.Option(help="What the rate is multiplied by.")] = None,
    width: Annotated[int, typer.Option(help="Channels of the first convolution.")] = 64,
    seed: Annotated[int, typer.Option(help="For initialization, order and augmentation.")] = 0,
    data_seed: Annotated[int, typer.Option(help="For subsets of the data.")] = 0,
    size: Annotated[
        int | None, typer.Option(help="Pixels a side to resize the images of a folder to.", min=1)
    ] = None,
    data_root: DataRoot = None,
    device: Device = None,
    resume: Annotated[bool, typer.Option(help="Go on where the folder's checkpoint stood.")] = True,
    compile: Annotated[
        bool, typer.Option(help="Compile the step; for long runs on a GPU.")
    ] = False,
    evaluate_every: Annotated[
        int | None, typer.Option(help="Take the test error every so many epochs, not only at last.")
    ] = None,
    checkpoint_steps: Annotated[
        int | None, typer.Option(help="Save within epochs too, every so many steps.")
    ] = None,
    tensorboard: Annotated[bool, typer.Option(help="Write for TensorBoard too.")] = False,
) -> None:
    """Trains a network; the same command goes on after an interruption.

    On several GPUs: torchrun --nproc-per-node 4 -m foveapool train ...
    """
    flags = {
        "optimizer": optimizer,
        "lr": lr,
        "epochs": epochs,
        "batch_size": batch_size,
        "momentum": momentum,
        "weight_decay": weight_decay,
        "milestones": _whole_numbers("milestones", milestones),
        "gamma": gamma,
    }
    with user_errors(), ExitStack() as stack:
        check_network_options(network, ())
        check_data_name(data)
        if not -(2**63) <= seed < 2**64:
            raise ValueError(f"seed: got {seed}, wanted a whole number of 64 bits, such as 0")
        check_folder_place(out)
        chosen = _recipe(recipe, network, data, flags)
        resized = {} if size is None else {"size": size}
        images = load_data(data, data_root, data_seed, **resized)
        if recipe is None and _is_own(data):
            few = batch_size is None and len(images.train) < chosen.batch_size
            chosen = dataclasses.replace(chosen, batch_size=len(images.train)) if few else chosen
            _tell(chosen)
        channels, *shape = images.train.images.shape[1:]
        built = build_network(
            network,
            seed=seed,
            classes=len(images.train.classes),
            width=width,
            in_channels=channels,
            in_shape=tuple(shape),
        )
        note = {
            "network": network,
            "data": data,
            "width": width,
            "seed": seed,
            "data_seed": data_seed,
            "epochs": chosen.epochs,
            **resized,
        }

        def begin() -> None:
            # Not before: a command that is refused leaves nothing that looks like a run.
            write_text(out / RUN_NOTE, json.dumps(note, indent=1))

        place = stack.enter_context(join_torchrun(choose_device(device)))
        leads = Workers.current().leads
        title = f"{network} on {data}, seed {seed}"
        result = train(
            built,
            images,
            chosen,
            seed,
            device=place,
            folder=out,
            resume=resume,
            evaluate_every=evaluate_every,
            checkpoint_steps=checkpoint_steps,
            compile=compile,
            tensorboard=tensorboard,
            progress=stack.enter_context(_watched(title, begin)) if leads else None,
        )
    if leads:
        typer.echo(
            f"{title}: error {result.test_error:.2f} %, loss {result.train_loss:.4f} after "
            f"{chosen.epochs} epochs, {result.seconds:.1f} s; in {out}"
        )


@contextmanager
def _watched(title: str, begin: Callable[[], None]) -> Iterator[Callable[[Progress], None]]:
    """Shows how far it is: a bar on a terminal, and a line an epoch where a file is written to.

    Calls `begin` once the training has been accepted and begins.
    """
    # Taken here, since a bar on a terminal puts itself in the place of sys.stdout.
    log = None if sys.stdout.isatty() and sys.stderr.isatty() else sys.stdout
    known: int | None = None

    def follow(progress: Progress) -> None:
        nonlocal known
        last, before = progress.last, known
        known = 0 if last is None else last.epoch
        if before is None:
            begin()
            if 0 < progress.done < progress.total:
                print(f"{title}: goes on after epoch {known}", file=log, flush=True)
        elif log is not None and last is not None and last.epoch > before:
            error = "" if last.test_error is None else f", error {last.test_error:.2f} %"
            print(
                f"{title}: epoch {last.epoch} of {progress.epochs}, loss {last.loss:.4f}{error}, "
                f"{last.seconds:.1f} s",
                file=log,
                flush=True,
            )
        if bar is not None:
            bar(progress)

    with ExitStack() as stack:
        bar = stack.enter_context(open_progress_bar(title)) if sys.stderr.isatty() else None
        yield follow


def _recipe(given: str | None, network: str, data: str, flags: dict[str, Any]) -> Recipe:
    """The flags over the named or read recipe, that over the paper's, or over a default.

    Data of one's own have the default.
    """
    if given is None:
        base = get_default_recipe(network) if _is_own(data) else get_paper_recipe(network, data)
    elif given.endswith(".toml"):
        base = read_recipe(given)
    else:
        base = get_recipe(given)
    changes = {name: value for name, value in flags.items() if value is not None}
    if "epochs" in changes and "milestones" not in changes:
        base = base.over(changes["epochs"])
    return dataclasses.replace(base, **changes)


def _is_own(data: str) -> bool:
    return data.startswith(("folder:", "npz:"))


def _tell(recipe: Recipe) -> None:
    """Says what data of one's own are trained on by, since nobody has chosen it."""
    values = ", ".join(f"{name} {value}" for name, value in recipe.as_dict().items() if value)
    typer.echo(
        f"recipe: {values} (as the paper trains on SVHN; --recipe or options such as --lr and "
        "--epochs change it)",
        err=True,
    )


def _whole_numbers(name: str, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise typer.BadParameter(f"{name}: got {text!r}, wanted epochs such as 150,250") from None
