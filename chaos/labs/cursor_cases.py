"""The cases of `lab cursor`: real runs on Ray, each killed in mid-accumulation, and what became of their batches.

Every case is the same run of the same seed with another trainer: the right one, and two with a planted defect
(`cursor_trainer.py`). Who says what went wrong is the auditor; the ledgers say which samples it is about.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from chaos.errors import ChaosError, OutputExists
from chaos.experiment import load_experiment
from chaos.forkclient import FORKSERVER_ENV
from chaos.interrupts import Interrupts
from chaos.labs.cursor_ledger import Applied, Update, events, read_applied
from chaos.life import Place
from chaos.run import Notify, run_experiment
from chaos.runfolder import STORE

GLOBAL_BATCH, MICROBATCHES = 8, 4
APPLIED, PREFETCHED, STEPS = 10, 3, 16
STRUCK_MICROBATCH = 2  # the third of four, counted from 0
_OLDER = 2  # how many updates the older cursor lies behind
_SAVE_EVERY, _ROWS = 5, 320  # an epoch of 40 batches: no sample comes twice by right
_RIGHT = "right"

# Checkpoints in mid-accumulation (`checkpoint_microbatches`) would be one more case here: the right trainer with that
# setting, which resumes behind the third backward pass and applies the same samples.
CURSOR_ERRORS: Mapping[str, int] = {_RIGHT: 0, "prefetched": PREFETCHED, "older": -_OLDER}


class CaseFailed(ChaosError):
    """A run of the lab did not come about as planned, so that it shows nothing."""


@dataclass(frozen=True)
class Blamed:
    """An invariant that the auditor found broken, with its witness."""

    id: int
    name: str
    witness: str


@dataclass(frozen=True)
class Case:
    """One run. cursor: what its checkpoint of update 10 holds, in batches. Samples are named by id.

    next_batch: what the recovered attempt read first. lost_*: never applied though later ones were. twice_*: applied
    by two updates.
    """

    name: str
    cursor: int
    cursor_samples: int
    restored_step: int
    next_batch: int
    lost_batches: tuple[int, ...]
    lost_samples: tuple[int, ...]
    twice_batches: tuple[int, ...]
    twice_samples: tuple[int, ...]
    verdict: str
    blamed: tuple[Blamed, ...]
    run: str
    records: tuple[Update, ...]


@dataclass(frozen=True)
class MidAccumulation:
    """The kill behind the third backward pass. partial_samples: had gone through it, and were in no update.

    redone_by: (step, attempt) of the update that applied them.
    """

    killed_at: str
    restored_step: int
    redone_updates: int
    partial_samples: tuple[int, ...]
    redone_by: tuple[int, int] | None


@dataclass(frozen=True)
class CursorLab:
    """All cases. applied and prefetched: batches, when the rank was killed."""

    applied: int
    prefetched: int
    cases: tuple[Case, ...]
    mid_accumulation: MidAccumulation

    @property
    def passed(self) -> bool:
        return all(_as_expected(case) for case in self.cases) and _redone(self.mid_accumulation)

    def to_json(self) -> dict[str, Any]:
        cases = [{**asdict(case), "passed": _as_expected(case)} for case in self.cases]
        middle = {**asdict(self.mid_accumulation), "passed": _redone(self.mid_accumulation)}
        return {
            "global_batch": GLOBAL_BATCH, "microbatches": MICROBATCHES, "applied": self.applied,
            "prefetched": self.prefetched, "cases": cases, "mid_accumulation": middle, "passed": self.passed,
        }  # fmt: skip


def _as_expected(case: Case) -> bool:
    """The published figures: which batches each cursor loses or applies twice, and that the auditor sees it."""
    error = CURSOR_ERRORS[case.name]
    lost = tuple(range(APPLIED, APPLIED + error)) if error > 0 else ()
    twice = tuple(range(APPLIED + error, APPLIED)) if error < 0 else ()
    blamed = any(each.id == 3 for each in case.blamed)
    return (
        (case.restored_step, case.cursor, case.next_batch) == (APPLIED, APPLIED + error, APPLIED + error)
        and case.cursor_samples == (APPLIED + error) * GLOBAL_BATCH
        and (case.lost_batches, case.twice_batches) == (lost, twice)
        and (case.verdict, blamed) == (("invalid", True) if error else ("valid", False))
    )


def _redone(middle: MidAccumulation) -> bool:
    expected = (STRUCK_MICROBATCH + 1) * GLOBAL_BATCH // MICROBATCHES
    return (
        (middle.restored_step, middle.redone_updates, middle.redone_by) == (APPLIED, 0, (APPLIED, 1))
        and len(middle.partial_samples) == expected
    )


def run_lab(output: Path, seed: int, notify: Callable[[str], Notify]) -> CursorLab:
    """Runs every case in the new folder `output`. notify: name of a case → who hears of its events.

    Raises OutputExists, CaseFailed.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        output.mkdir()
    except FileExistsError:
        raise OutputExists(f"{output}: exists already and was left as it is; choose another --output") from None
    with _one_place():
        runs = {name: _run(output, name, seed, notify(name)) for name in CURSOR_ERRORS}
    right = read_applied(runs[_RIGHT][0], GLOBAL_BATCH)
    cases = tuple(_case(name, *run, right) for name, run in runs.items())
    prefetched = _prefetched(runs[_RIGHT][0])
    if prefetched < PREFETCHED:
        raise CaseFailed(
            f"{runs[_RIGHT][0]}: only {prefetched} batches were prefetched behind update {APPLIED}, {PREFETCHED} are "
            "needed to lose them, and the trainer should have waited for them: a defect of this lab"
        )
    return CursorLab(APPLIED, prefetched, cases, _mid_accumulation(*runs[_RIGHT], right))


@contextmanager
def _one_place() -> Iterator[None]:
    """One Ray and one fork server for all cases; where there is a Ray already, that one."""
    before = os.environ.get(FORKSERVER_ENV)
    with Interrupts() as interrupts, Place(interrupts) as place:
        os.environ.update(place.enter(cpus=4, fork_workers=True))
        try:
            yield
        finally:
            os.environ.pop(FORKSERVER_ENV)
            if before is not None:
                os.environ[FORKSERVER_ENV] = before


_Run = tuple[Path, Mapping[str, Any]]


def _run(output: Path, name: str, seed: int, notify: Notify) -> _Run:
    file = output / f"{name}.yaml"
    described = _experiment(CURSOR_ERRORS[name], seed, (output / name).resolve() / STORE / "log")
    file.write_text(yaml.safe_dump(described, sort_keys=False), encoding="utf-8")
    outcome = run_experiment(load_experiment(file), output / name, notify=notify)
    if outcome.failure is not None:
        raise CaseFailed(f"{outcome.folder}: the run did not reach its end: {outcome.failure}")
    if outcome.verdict["verdict"] == "unknown" or len(outcome.verdict["recoveries"]) != 1:
        raise CaseFailed(f"{outcome.folder}: was not killed exactly once and judged: killpoint audit {outcome.folder}")
    return outcome.folder, outcome.verdict


def _experiment(cursor_error: int, seed: int, log: Path) -> dict[str, Any]:
    struck = APPLIED * MICROBATCHES + STRUCK_MICROBATCH + 1
    config = {
        "rows": _ROWS, "log": str(log), "publish": APPLIED, "at_microbatch": struck,
        "ahead": PREFETCHED * MICROBATCHES, "cursor_error": cursor_error,
    }  # fmt: skip
    return {
        "run": {
            "workload": "chaos.labs.cursor_trainer:build", "config": config, "seed": seed, "ranks": 1,
            "global_batch": GLOBAL_BATCH, "microbatches": MICROBATCHES, "steps": STEPS, "save_every": _SAVE_EVERY,
            "standbys": 1, "prefetch_batches": PREFETCHED * MICROBATCHES, "twin": False,
        },
        "faults": [
            {"kind": "sigkill", "at": {"attempt": 0, "role": "rank", "rank": 0, "point": "microbatch.backward",
                                       "hit": struck}}
        ],
    }  # fmt: skip


def _case(name: str, run: Path, verdict: Mapping[str, Any], right: Applied) -> Case:
    applied = read_applied(run, GLOBAL_BATCH)
    (recovery,) = verdict["recoveries"]
    (restored,) = (event for event in events(run, "worker", "restored") if event["attempt"] == 1)
    first = next(update for update in applied.updates if update.attempt == 1)
    lost, twice = applied.never(), applied.repeated()
    return Case(
        name=name,
        cursor=restored["cursor"] // GLOBAL_BATCH,
        cursor_samples=restored["cursor"],
        restored_step=recovery["restored_step"],
        next_batch=first.batches[0],
        lost_batches=_batches(lost),
        lost_samples=tuple(right.id_at[position] for position in lost),
        twice_batches=_batches(twice),
        twice_samples=tuple(right.id_at[position] for position in twice),
        verdict=verdict["verdict"],
        blamed=tuple(
            Blamed(each["id"], each["name"], each["witness"])
            for each in verdict["invariants"] if each["verdict"] == "invalid"
        ),
        run=str(run),
        records=applied.updates,
    )  # fmt: skip


def _batches(positions: list[int]) -> tuple[int, ...]:
    return tuple(sorted({position // GLOBAL_BATCH for position in positions}))


def _prefetched(run: Path) -> int:
    """Whole batches that lay in the killed rank's queue behind its last update."""
    behind = [e["queue_depth"] for e in events(run, "worker", "step") if (e["attempt"], e["step"]) == (0, APPLIED)]
    return int(min(behind) // MICROBATCHES) if behind else 0


def _mid_accumulation(run: Path, verdict: Mapping[str, Any], right: Applied) -> MidAccumulation:
    (fault,), (recovery,) = verdict["faults"], verdict["recoveries"]
    point, hit = fault["receipt"]["point"], fault["receipt"]["hit"]
    step, microbatch = divmod(hit - 1, MICROBATCHES)
    rows = (microbatch + 1) * GLOBAL_BATCH // MICROBATCHES
    partial = tuple(right.id_at[position] for position in range(step * GLOBAL_BATCH, step * GLOBAL_BATCH + rows))
    by = [(u.step, u.attempt) for u in right.updates if set(partial) & set(u.sample_ids)]
    redone_by = by[0] if len(by) == 1 and set(partial) <= set(_update(right, by[0][0]).sample_ids) else None
    killed_at = f"{point} of microbatch {microbatch} of update {step} (hit {hit})"
    return MidAccumulation(killed_at, recovery["restored_step"], recovery["redo_steps"], partial, redone_by)


def _update(applied: Applied, step: int) -> Update:
    return next(update for update in applied.updates if update.step == step)
