"""`killpoint lab resume`: a resume in a fresh process proven against the continuous training (reference B)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chaos.labs.choices import Omission
from chaos.shell import JsonOption, QuietOption, errors_reported, print_json

if TYPE_CHECKING:
    from chaos.labs.resume_proof import Notify


def command(
    steps: Annotated[
        int, typer.Option(min=1, help="additional updates after the checkpoint: with one of step 5 and 5 it ends at 10")
    ] = 5,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="resume from the checkpoint of an earlier proof; otherwise one is made at step 5 first"),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="new folder for the proof; otherwise one below runs/")] = None,
    omit: Annotated[
        list[Omission] | None,
        typer.Option(
            help="the part that the incomplete resume leaves out; given several times, one journey for each. "
            "Without it one journey leaves out all three generators"
        ),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """A small network with dropout, resumed in a fresh process: the full resume must match, an incomplete one must not.

    --steps counts additional updates; in `lab linreg` it counts from the beginning of the training.

    Exit status: 0 the full resume matches and every incomplete one is caught, 1 not so, 2 could not be completed.
    """
    with errors_reported():
        from chaos.labs.resume_proof import prove
        from chaos.labs.resume_report import render
        from chaos.report import print_results

        omissions = list(dict.fromkeys(omit or []))
        words = ["killpoint", "lab", "resume", "--steps", str(steps)]
        for name, value in (("--checkpoint", checkpoint), ("--output", output)):
            words += [name, str(value)] if value is not None else []
        words += [word for one in omissions for word in ("--omit", one.value)]
        with _progress(quiet) as notify:
            report, folder = prove(steps, output, checkpoint, omissions, shlex.join(words), notify)
        if as_json:
            print_json(report)
        else:
            print_results(render(report, folder))
        raise typer.Exit(0 if report["all_checks_passed"] else 1)


@contextmanager
def _progress(quiet: bool) -> Iterator[Notify]:
    """A spinner on a terminal, single lines elsewhere."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False, markup=False)
    if quiet:
        yield lambda name: None
    elif not console.is_terminal:
        yield lambda name: console.print(f"journey: {name}")
    else:
        with console.status("journeys in fresh processes") as status:
            yield lambda name: status.update(f"journey in a fresh process: {name}")
