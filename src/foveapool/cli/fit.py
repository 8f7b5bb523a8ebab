"""`foveapool fit`: an operator from a run folder of `foveapool train`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from foveapool._io import check_file_place
from foveapool.cli.options import DataRoot, Device, user_errors
from foveapool.pooling.solve import Alpha, pooling_report
from foveapool.study.fits import solve_scatter, sum_scatter
from foveapool.study.loading import RUN_NOTE, load_trained_network, read_run
from foveapool.study.setting import CLOSED_FORM, Pool, Setting
from foveapool.training.parallel import choose_device


def fit_command(
    run: Annotated[Path, typer.Argument(help="A run folder of `foveapool train`.")],
    layer: Annotated[int, typer.Option(help="The first, second or third pooling layer.")] = 3,
    alpha: Annotated[
        str, typer.Option(help="Strength of the locality, a number; auto is half of trace(B)/N.")
    ] = "auto",
    norm: Annotated[str, typer.Option(help="l1 or l2.")] = "l2",
    components: Annotated[int, typer.Option(help="Maps that each channel gets.")] = 2,
    placement: Annotated[
        str | None, typer.Option(help="In a ResNet: both, before, main or shortcut.")
    ] = None,
    report: Annotated[
        str | None, typer.Option(help="Also tell what these alphas would reach, such as 5,25,100.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The operator's file; in the run folder if not given.")
    ] = None,
    data_root: DataRoot = None,
    device: Device = None,
) -> None:
    """Fits a pooling on a network of `foveapool train` and says what it found.

    A network of your own is fitted in Python: foveapool.ClosedFormPooling().fit(model, loader,
    layer).
    """
    with user_errors():
        if not (run / RUN_NOTE).is_file():
            raise FileNotFoundError(
                f"{run}: no {RUN_NOTE} there, wanted a run folder of `foveapool train`; a network "
                "of your own is fitted in Python, by foveapool.ClosedFormPooling().fit(model, "
                "loader, layer)"
            )
        facts = read_run(run)
        path = out or run / f"operator-{layer}.safetensors"
        # Mistakes are to be known before the seconds that the data take.
        check_file_place(path)
        choose_device(device)
        Setting(network=facts["network"], placement=placement)
        pool = Pool(CLOSED_FORM, layer, _alpha(alpha), norm, components)  # type: ignore[arg-type]
        alphas = [_alpha(part) for part in report.split(",")] if report is not None else []
        for each in alphas:
            replace(pool, alpha=each)
        trained = load_trained_network(run, data_root)
        done, wanted = int(trained.columns["epochs"]), facts.get("epochs")
        if wanted is not None and done < wanted:
            typer.echo(f"note: {run} is trained for {done} of {wanted} epochs", err=True)
        site = trained.network.site(layer, placement)
        scatter = sum_scatter(trained.network, trained.data, site, pool, device)
        if alphas:
            typer.echo(str(pooling_report(scatter, site.out_shape, alphas=alphas)))
        operator = solve_scatter(scatter, site, pool)
        path.parent.mkdir(parents=True, exist_ok=True)
        operator.save(path)
    typer.echo(f"{facts['network']} on {facts['data']}, maps at {site.module}:")
    typer.echo(operator.summary())
    typer.echo(f"written to {path}")


def _alpha(text: str) -> Alpha:
    try:
        return "auto" if text == "auto" else float(text)
    except ValueError:
        raise ValueError(f"alpha: got {text!r}, wanted a positive number or auto") from None
