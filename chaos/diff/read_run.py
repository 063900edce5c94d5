"""A run folder → its trace, through the auditor's readers: history for what each step did, ledger segments for its
samples. Reads, never writes; damage is a note, since a comparison may still find where two runs part.

Segments of abandoned attempts are read too, published or not: the digest of the ids that the rank recorded at the step
says whether a segment is what was consumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from chaos.audit.events import Event, Opened, Restored, StepDone
from chaos.audit.evidence import History, Segment
from chaos.audit.facts import DataNamed, RunBegun
from chaos.audit.formats import bulk_digest
from chaos.audit.read_files import see_file
from chaos.audit.read_history import read_history
from chaos.diff.trace import Start, StepRecord, Trace, TraceError

Place = tuple[int, int, int]
"""(attempt, rank, updates done)."""
Ids = dict[Place, tuple[int, ...]]
"""Sample ids in the order of consumption."""


@dataclass(frozen=True)
class Side:
    """One of the two that are compared.

    settings: what determines the numbers. metadata: what does not (faults, paths, processes, times). problems:
    evidence that is missing or damaged: with any of them "no difference" proves nothing. folder: of a run.
    """

    trace: Trace
    settings: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    folder: Path | None = None


def read_run(folder: Path) -> Side:
    """Raises TraceError if the history does not say what was run, or records no step."""
    history, begun, data = read_history(folder / "history")
    if begun is None:
        raise TraceError(f"{folder}: its history does not say what was run{_first_problem(history)}")
    steps = list(_events(history, StepDone))
    if not steps:
        raise TraceError(f"{folder}: its history records no step{_first_problem(history)}")
    ids, wrong = _ledger(folder, steps, begun.global_batch // begun.ranks)
    records = tuple(_record(event.attempt or 0, event.what, ids) for event in _in_order(steps))
    starts = tuple(_start(event.attempt or 0, event.what) for event in _in_order(list(_events(history, Restored))))
    rows = None if data is None else data.dataset.rows
    trace = Trace(str(folder), begun.ranks, begun.global_batch, rows, begun.steps, starts, records)
    problems = (*_problems(history), *wrong, *_gaps(trace))
    return Side(trace, _settings(begun, data), _metadata(folder, begun, history), problems, folder)


def _events(history: History, kind: type[Any]) -> Iterator[Event[Any]]:
    yield from (event for event in history.by_kind.get(kind, ()) if event.attempt is not None)


def _in_order(events: list[Event[Any]]) -> list[Event[Any]]:
    """As they happened: attempt by attempt, update by update, rank by rank."""
    return sorted(events, key=lambda event: (event.attempt or 0, event.what.step, event.what.rank))


def _record(attempt: int, done: StepDone, ids: Ids) -> StepRecord:
    return StepRecord(
        step=done.step, rank=done.rank, attempt=attempt, ids_digest=done.ids, lr=done.lr, loss=done.loss,
        state=done.state, ids=ids.get((attempt, done.rank, done.step)), gradient_norm=done.gradient_norm,
        skipped=done.skipped, samples_seen=done.samples_seen,
    )  # fmt: skip


def _start(attempt: int, restored: Restored) -> Start:
    inside = getattr(restored, "microbatch", 0)  # of a checkpoint inside of a step, where the run makes such
    return Start(attempt, restored.rank, restored.step, restored.cursor, restored.state, restored.name, {}, inside)


def _ledger(folder: Path, steps: list[Event[Any]], rows: int) -> tuple[Ids, list[str]]:
    """The ids of each step that are those which the rank recorded; and which are not. rows: of one step on a rank.

    A step may lie in several segments: of checkpoints inside of it, and of the attempt that a restart went on from.
    """
    pieces: dict[Place, dict[int, Any]] = {}
    names: dict[Place, str] = {}
    for path in sorted((folder / "store" / "ledger").glob("*.arrow")):
        segment = see_file(path, f"ledger/{path.name}", "ledger").segment
        if segment is not None:  # otherwise a save that was interrupted: of its steps the digests remain
            for place, microbatches in _by_step(segment):
                pieces.setdefault(place, {}).update(microbatches)
                names[place] = f"ledger/{path.name}"
    found: Ids = {}
    wrong: list[str] = []
    for event in steps:
        place = attempt, rank, step = event.attempt or 0, event.what.rank, event.what.step
        parts: dict[int, Any] = {}
        for life in range(attempt, -1, -1):  # what an attempt lacks of the step, it has from one before
            parts = {**pieces.get((life, rank, step), {}), **parts}
            ids = np.concatenate([parts[m] for m in sorted(parts)]) if parts else np.zeros(0, np.int64)
            if event.what.ids == bulk_digest(np.ascontiguousarray(ids, "<i8").tobytes()):
                found[place] = tuple(ids.tolist())
                break
        if place not in found and sum(map(len, pieces.get(place, {}).values())) >= rows:
            wrong.append(f"{names[place]} has other samples for step {step} than rank {rank} recorded")
    return found, wrong


def _by_step(segment: Segment) -> Iterator[tuple[Place, dict[int, Any]]]:
    """(place, microbatch → sample ids in the order of consumption) of each step."""
    order = np.lexsort((segment.position, segment.microbatch, segment.step))
    steps, microbatches, ids = segment.step[order], segment.microbatch[order], segment.sample_id[order]
    for step in np.unique(steps).tolist():
        of_step = steps == step
        own = microbatches[of_step]
        yield ((segment.meta.attempt, segment.meta.rank, step + 1),
               {m: ids[of_step][own == m] for m in np.unique(own).tolist()})  # fmt: skip


def _first_problem(history: History) -> str:
    return "".join(f": {problem}" for problem in _problems(history)[:1])


def _problems(history: History) -> list[str]:
    """A line cut off by a kill is no problem; a line that is not what its format says is one."""
    return [f"history/{file.name}, {file.problem}" for file in history.files.values() if file.problem is not None]


def _gaps(trace: Trace) -> Iterator[str]:
    """An attempt's records of a rank must follow its start and each other."""
    begun = {(start.attempt, start.rank): start.step for start in trace.starts}
    expected: dict[tuple[int, int], int] = {key: step + 1 for key, step in begun.items()}
    for record in trace.records:
        key = record.attempt, record.rank
        if record.step != expected.get(key, record.step):
            yield (f"rank {record.rank} of attempt {record.attempt} recorded step {record.step} where step "
                   f"{expected[key]} was due")
        expected[key] = record.step + 1
    yield from _ends_early(trace)


def _ends_early(trace: Trace) -> Iterator[str]:
    """In the last attempt every rank records as many steps as the first of them."""
    last = max(record.attempt for record in trace.records)
    reached = {rank: max((r.step for r in trace.records if r.attempt == last and r.rank == rank), default=0)
               for rank in range(trace.ranks)}
    for rank, step in reached.items():
        if step < max(reached.values()):
            yield f"rank {rank} of attempt {last} recorded steps up to {step}, others up to {max(reached.values())}"


def _settings(begun: RunBegun, data: DataNamed | None) -> dict[str, str]:
    platform = ", ".join(f"{name} {value}" for name, value in sorted(begun.platform.items()))
    named = {"seed": str(begun.seed), "training": begun.training_digest, "code": begun.code_version,
             "platform": platform}  # fmt: skip
    return named if data is None else {**named, "dataset": data.dataset.fingerprint, "plan": str(data.plan)}


def _metadata(folder: Path, begun: RunBegun, history: History) -> dict[str, str]:
    opened = [file.opened for file in history.files.values() if isinstance(file.opened, Opened)]
    instants = [event.t_ns for events in history.by_kind.values() for event in events]
    return {
        "run id": begun.run,
        "experiment": begun.config_digest,
        "path": str(folder),
        "hosts": ", ".join(sorted({each.host for each in opened})),
        "boots": ", ".join(sorted({each.boot for each in opened})),
        "pids": ", ".join(str(each.pid) for each in opened),
        "times": f"{min(instants, default=0)}–{max(instants, default=0)} ns",
    }
