"""`killpoint lab pipeline`: what an input pipeline hides, what a queue absorbs, and what neither can beat.

The model is exact and takes no time. `--measure` runs the trainers' own pipeline on Ray with the stated times.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType

from chaos.labs.pipeline_answer import Answer, Settings, answer
from chaos.shell import JsonOption, QuietOption, complain, errors_reported, print_json

if TYPE_CHECKING:
    from chaos.labs.pipeline_measure import Measurement

_MEASURED_BATCHES = 8
_MOST_BATCHES = 1000


def command(
    prepare_ms: Annotated[float, typer.Option(min=0, help="preparing one batch takes this long")] = 6,
    train_ms: Annotated[float, typer.Option(min=0, help="training on one batch takes this long")] = 10,
    batches: Annotated[int, typer.Option(min=1, max=_MOST_BATCHES, help="batches in all")] = 4,
    depth: Annotated[int, typer.Option(min=0, help="batches prepared ahead of training; 0 is serial")] = 2,
    jitter_ms: Annotated[float, typer.Option(min=0, help="each preparation is longer or shorter by up to this")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="of the jitter")] = 7,
    picture: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="the timeline as a new SVG file")] = None,
    measure: Annotated[bool, typer.Option("--measure", help="the same on Ray Data, beside the model")] = False,
    stretch: Annotated[
        float, typer.Option(min=1, help="measured stages take so many times longer than stated: preparing a batch "
                            "of Ray Data takes some 50 ms at least")
    ] = 20,
    workers: Annotated[int, typer.Option(min=1, max=16, help="data workers, at most, with --measure")] = 4,
    tolerance: Annotated[
        float, typer.Option(min=0, help="how far measurement and model may be apart, as a part of the model's interval")
    ] = 0.25,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """A producer, a bounded queue and a consumer: an exact model, its timeline, and with --measure the real one.

    Exit status 0, or 1 if the measurement contradicts the model beyond the tolerance, or 2 if there is no answer.
    """
    with errors_reported():
        asked = Settings(
            _us(prepare_ms, "--prepare-ms"), _us(train_ms, "--train-ms"), batches, depth, _us(jitter_ms, "--jitter-ms"),
            seed,
        )
        if asked.jitter_us > asked.prepare_us:
            raise typer.BadParameter("is at most --prepare-ms: no time is negative", param_hint="--jitter-ms")
        modelled = answer(asked)
        if picture is not None:
            _write_picture(picture, modelled)
        measured = None
        if measure:
            measured = _measure(asked, stretch, workers, tolerance, quiet)
        _show(modelled, measured, stretch, as_json)
        raise typer.Exit(0 if measured is None or measured.passed else 1)


def _us(time_ms: float, option: str) -> int:
    exact = Fraction(str(time_ms)) * 1000
    if exact.denominator != 1:
        raise typer.BadParameter("has more than three digits behind the point", param_hint=option)
    return exact.numerator


def _write_picture(path: Path, modelled: Answer) -> None:
    from chaos.labs.pipeline_picture import ms, timeline_svg

    asked, timeline = modelled.settings, modelled.timeline
    title = (
        f"{asked.batches} batches, preparation {ms(asked.prepare_us)} ms, training {ms(asked.train_us)} ms, "
        f"depth {asked.depth}: {ms(timeline.total_us)} ms"
    )
    with path.open("x", encoding="utf-8") as file:
        file.write(timeline_svg(timeline, title))


def _measure(asked: Settings, stretch: float, workers: int, tolerance: float, quiet: bool) -> Measurement:
    from chaos.cluster import ray_cluster, stdout_on_stderr
    from chaos.interrupts import Interrupts
    from chaos.labs.pipeline_measure import Stated, measure

    prepare_us, train_us, jitter_us = (
        round(time_us * stretch) for time_us in (asked.prepare_us, asked.train_us, asked.jitter_us)
    )
    counts = (*(count for count in (1, 2, 4, 8) if count < workers), workers)
    stated = Stated.of(
        prepare_us, jitter_us, asked.seed, train_us, max(asked.batches, _MEASURED_BATCHES),
        depths=tuple(sorted({0, 1, max(1, asked.depth), 2 * max(1, asked.depth)})), workers=counts,
        tolerance=tolerance,
    )
    os.environ.setdefault("RAY_DATA_LOG_LEVEL", "ERROR")  # else it tells each stream's life
    interrupts = Interrupts()
    with interrupts, stdout_on_stderr(), ray_cluster(workers + 1, interrupts):
        return measure(stated, (lambda text: None) if quiet else lambda text: complain(f"measuring: {text}"))


_COLUMNS = 120  # of a timeline that is not on a terminal


def _show(modelled: Answer, measured: Measurement | None, stretch: float, as_json: bool) -> None:
    if as_json:
        value = modelled.to_json()
        print_json({**value, "measured": None if measured is None else {"stretch": stretch, **measured.to_json()}})
        return
    from rich.console import Console, Group

    from chaos.report import print_results

    print_results(Group(*_report(modelled, measured, stretch, min(Console().width, _COLUMNS))))


def _report(
    modelled: Answer, measured: Measurement | None, stretch: float, columns: int
) -> Iterator[RenderableType]:
    from chaos.labs.pipeline_report import render_measurement, render_model

    yield from render_model(modelled, columns)
    if measured is not None:
        yield from render_measurement(measured, stretch)
