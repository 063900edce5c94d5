"""`killpoint lab linreg`: an uninterrupted and a resumed training, compared in every field (reference A)."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chaos.labs.choices import Fault
from chaos.shell import JsonOption, errors_reported, print_json

if TYPE_CHECKING:
    from chaos.labs.linreg_proof import Proof


def command(
    steps: Annotated[
        int, typer.Option(min=1, help="updates in all, those before the checkpoint included: from 19 to 80 it does 61")
    ] = 80,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="with --resume: go on from this checkpoint (otherwise one is made at step 19 first); without: "
            "where to write the one of the last step"
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="new folder for results; otherwise one below runs/")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="go on from a checkpoint, and compare with the uninterrupted training")
    ] = False,
    fault: Annotated[Fault | None, typer.Option(help="with --resume: what to do wrongly when restoring")] = None,
    as_json: JsonOption = False,
) -> None:
    """A line through 16 points, uninterrupted or resumed; what one forgotten part of a checkpoint does to it.

    --steps counts from the beginning of the training; in `lab resume` it counts additional updates.

    Exit status: 0 passed, 1 the resumed training is not the uninterrupted one, 2 could not be completed.
    """
    with errors_reported():
        if fault is not None and not resume:
            raise typer.BadParameter("is what a restore does wrongly: it needs --resume", param_hint="--fault")
        from chaos.labs.linreg_proof import prove, train
        from chaos.labs.linreg_report import render
        from chaos.report import print_results

        line = _command_line(steps, checkpoint, output, resume, fault)
        if resume:
            proof: Proof = prove(steps, checkpoint, output, fault, line)
        else:
            proof = train(steps, checkpoint, output, line)
        if as_json:
            print_json(proof.report)
        else:
            print_results(render(proof.report, proof.folder))
        raise typer.Exit(0 if proof.report["all_checks_passed"] else 1)


def _command_line(
    steps: int, checkpoint: Path | None, output: Path | None, resume: bool, fault: Fault | None
) -> str:
    words = ["killpoint", "lab", "linreg", "--steps", str(steps), *(["--resume"] if resume else [])]
    for name, value in (("--checkpoint", checkpoint), ("--output", output), ("--fault", fault)):
        words += [name, str(value)] if value is not None else []
    return shlex.join(words)
