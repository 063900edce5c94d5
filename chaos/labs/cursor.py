"""`killpoint lab cursor`: prefetched is not consumed. What a checkpoint's cursor must be, and what others do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from chaos.labs.tables import STYLES
from chaos.labs.tables import table as _table
from chaos.shell import JsonOption, QuietOption, complain, errors_reported, print_json

if TYPE_CHECKING:
    from chaos.labs.cursor_cases import Case, CursorLab
    from chaos.run import Notify
    from chaos.twin import TwinEvent
    from trainers.events import Event

_TITLES = {
    "right": "the right cursor",
    "prefetched": "a trainer that counts what was prefetched",
    "older": "parameters of update 10 with the cursor of update 8",
}


def command(
    output: Annotated[Path | None, typer.Option(help="new folder for the runs; otherwise one below runs/")] = None,
    seed: Annotated[int, typer.Option(min=0, help="of the runs")] = 7,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Ten batches applied, three prefetched, a kill behind the third of four backward passes: on real runs.

    Trains the same run with the right cursor and with two wrong ones, and lets the auditor say what is lost or applied
    twice. Exit status 0 as published, 1 not, 2 if a run did not come about.
    """
    with errors_reported():
        from chaos.labs.cursor_cases import run_lab

        folder = (output or Path("runs") / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-lab-cursor").resolve()

        lab = run_lab(folder, seed, lambda case: _narrator(case, folder / case, quiet))
        if as_json:
            print_json(lab.to_json())
        else:
            from rich.console import Group

            from chaos.report import print_results

            print_results(Group(*_report(lab)))
        raise typer.Exit(0 if lab.passed else 1)


def _narrator(case: str, folder: Path, quiet: bool) -> Notify:
    """Tells on standard error how the run of one case goes."""
    from trainers.events import Chosen, DeathDetected

    def tell(event: Event | TwinEvent) -> None:
        if isinstance(event, DeathDetected):
            complain(f"  attempt {event.attempt} lost its rank (pid {event.pid})")
        if isinstance(event, Chosen) and event.attempt > 0:
            complain(f"  attempt {event.attempt} goes on from {event.name}")

    if quiet:
        return lambda event: None
    complain(f"training with {_TITLES[case]} in {folder}")
    return tell


def _report(lab: CursorLab) -> Iterator[RenderableType]:
    from chaos.labs.cursor_cases import GLOBAL_BATCH, PREFETCHED

    yield Text(
        f"{lab.applied} batches of {GLOBAL_BATCH} samples applied, {PREFETCHED} or more prefetched "
        f"({lab.prefetched} when measured), then SIGKILL: the cursor is {lab.applied}, that is position "
        f"{lab.applied * GLOBAL_BATCH}."
    )
    table = _table("By stored cursor", "cursor", "position", "reads on at", "never applied", "applied twice", "verdict")
    for case in lab.cases:
        table.add_row(
            str(case.cursor), str(case.cursor_samples), f"batch {case.next_batch}", _listed(case.lost_batches),
            _listed(case.twice_batches), Text(case.verdict, style=STYLES.get(case.verdict, "")),
        )  # fmt: skip
    yield table
    yield _updates(lab)
    for case in lab.cases:
        yield from _case(case)
    yield from _mid_accumulation(lab)
    style = STYLES["valid" if lab.passed else "invalid"]
    yield Text("as published" if lab.passed else "not as published", style=style)


def _case(case: Case) -> Iterator[RenderableType]:
    yield Text(f"\n{_TITLES[case.name]}: {case.run}", style="bold")
    if case.lost_samples:
        yield Text(f"samples silently lost: {_listed(case.lost_samples)}")
    if case.twice_samples:
        yield Text(f"samples applied twice: {_listed(case.twice_samples)}")
    for blamed in case.blamed:
        yield Text(f"auditor, invariant {blamed.id} ({blamed.name}): {blamed.witness}")

def _updates(lab: CursorLab) -> Table:
    table = _table(
        "Batches by update, sample ids with --json", "update", "attempt",
        *(f"cursor {case.cursor}" for case in lab.cases),
    )  # fmt: skip
    for made in zip(*(case.records for case in lab.cases), strict=True):
        table.add_row(str(made[0].step), str(made[0].attempt), *(_listed(update.batches) for update in made))
    return table


def _mid_accumulation(lab: CursorLab) -> Iterator[RenderableType]:
    middle = lab.mid_accumulation
    yield Text(f"\nkilled in mid-accumulation: {middle.killed_at}", style="bold")
    by = "no single update" if middle.redone_by is None else "update {} of attempt {}".format(*middle.redone_by)
    yield Text(
        f"Restored: update {middle.restored_step}, the last full one; {middle.redone_updates} full updates redone. The "
        f"gradients of samples {_listed(middle.partial_samples)} died with the rank; {by} applied these samples."
    )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"
