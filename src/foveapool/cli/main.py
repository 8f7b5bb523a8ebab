"""The `foveapool` command: one group or command a file, put together here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from foveapool._suggest import how_to_install

if TYPE_CHECKING:
    import typer


def main() -> None:
    """Runs the command line."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as error:
        sys.exit(f"error: {error.name} is not installed; {how_to_install('cli')}")
    application()()


def application() -> typer.Typer:
    """All the commands."""
    import typer

    from foveapool.cli import (
        bench,
        data,
        demo,
        figures,
        fit,
        layers,
        options,
        report,
        results,
        robustness,
        runs,
        study,
        train,
    )

    app = typer.Typer(
        cls=options.CommandGroup,
        no_args_is_help=True,
        pretty_exceptions_show_locals=False,
    )
    app.callback()(options.general_options)
    app.command("demo")(demo.demo_command)
    app.command("layers")(layers.layers_command)
    app.command("train")(train.train_command)
    app.command("fit")(fit.fit_command)
    app.command("bench")(bench.bench_command)
    app.command("study")(study.study_command)
    app.command("results")(results.results_command)
    app.command("report")(report.report_command)
    app.add_typer(data.app, name="data")
    app.add_typer(figures.app, name="figures")
    app.add_typer(robustness.app, name="robustness")
    app.add_typer(runs.app, name="runs")
    return app
