"""Making and keeping the proof of `lab linreg`: snapshot, trainings, comparison, and the command that made them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.diff.trace import TRACE_FILE, Trace
from chaos.errors import LabError
from chaos.labs.choices import Fault
from chaos.labs.compare import compare_fields, first_difference
from chaos.labs.files import (
    CHECKPOINT,
    COMMAND,
    REPORT,
    SUMMARY,
    new_folder,
    read_checkpoint,
    write_bytes_with_digest,
    write_checkpoint,
    write_json,
    write_new,
)
from chaos.labs.linreg_task import BATCH, ROWS, Training

SNAPSHOT, SNAPSHOT_STEP = "snapshot.json", 19
# What a step shows, in the order in which one follows from the other.
_SHOWN = (("sample ids", ("ids",)), ("rate", ("lr",)), ("loss", ("loss",)), ("parameters", ("w", "b")))


@dataclass(frozen=True)
class Proof:
    """report: as `--json` prints it. folder: where everything lies."""

    report: dict[str, Any]
    folder: Path


def train(steps: int, checkpoint: Path | None, output: Path | None, command: str) -> Proof:
    """Uninterrupted to `steps`. Raises OutputExists, LabError."""
    if checkpoint is not None and checkpoint.exists():
        raise LabError(f"{checkpoint}: exists already and was left as it is; give --resume to go on from it")
    folder = new_folder(output, "linreg")
    write_new(folder / COMMAND, f"{command}\n".encode())
    training = Training()
    training.run_to(steps)
    _leave(folder / "uninterrupted", "uninterrupted", training, steps, None)
    if checkpoint is not None:
        write_checkpoint(checkpoint, training.body())
    report = {"lab": "linreg", "command": command, "steps": steps, "all_checks_passed": True, "compared": False,
              "uninterrupted": _end(training), "records": {"uninterrupted": training.rows}}
    write_json(folder / REPORT, report)
    return Proof(report, folder)


def prove(steps: int, checkpoint: Path | None, output: Path | None, fault: Fault | None, command: str) -> Proof:
    """Resumed from the snapshot to `steps`, beside the uninterrupted training. Raises OutputExists, LabError.

    The snapshot is read and checked before anything is written.
    """
    if checkpoint is None:
        if steps <= SNAPSHOT_STEP:
            raise LabError(f"--steps {steps}: counts from the beginning, and without --checkpoint one is made at step "
                           f"{SNAPSHOT_STEP}: give a greater one")
        made = Training()
        made.run_to(SNAPSHOT_STEP)
        folder = new_folder(output, "linreg")
        checkpoint = folder / SNAPSHOT
        write_checkpoint(checkpoint, made.body())
        body, _, digest = read_checkpoint(checkpoint)
        resumed = _restored(body, checkpoint, digest, fault, steps)
    else:
        body, data, digest = read_checkpoint(checkpoint)
        resumed = _restored(body, checkpoint, digest, fault, steps)
        folder = new_folder(output, "linreg")
        write_bytes_with_digest(folder / SNAPSHOT, data)
    write_new(folder / COMMAND, f"{command}\n".encode())
    snapshot = {**_end(resumed), **body["parameters"], "samplePosition": body["samplePosition"]}
    at_restore = resumed.start.state
    uninterrupted = Training()
    uninterrupted.run_to(steps)
    resumed.run_to(steps)
    _leave(folder / "uninterrupted", "uninterrupted", uninterrupted, steps, None)
    _leave(folder / "resumed", f"resumed, {fault}" if fault else "resumed", resumed, steps, digest)
    before = {record.step: record.state for record in uninterrupted.records}.get(body["step"])
    report = {
        "lab": "linreg", "command": command, "steps": steps, "resumed_from": body["step"], "fault": fault,
        "snapshot": snapshot, "snapshot_digest": digest,
        "parts_wrong_after_restore": sorted(p for p in at_restore if before is not None and at_restore[p] != before[p]),
        "uninterrupted": _end(uninterrupted), "resumed": _end(resumed), **_compared(uninterrupted, resumed),
        "records": {"uninterrupted": uninterrupted.rows, "resumed": resumed.rows},
    }  # fmt: skip
    write_json(folder / REPORT, report)
    return Proof(report, folder)


def _restored(body: dict[str, Any], path: Path, digest: str, fault: Fault | None, steps: int) -> Training:
    step = body.get("step")
    if type(step) is int and step >= steps:
        raise LabError(f"{path}: is of step {step} and --steps is {steps}: it counts from the beginning, so nothing is "
                       "left to do; give a greater one")
    return Training.restored(body, path, digest, fault)


def _end(training: Training) -> dict[str, Any]:
    state = training.state()
    return {"step": training.step, **state["parameters"], "mse": training.mse(), "samplePosition": training.position}


def _compared(uninterrupted: Training, resumed: Training) -> dict[str, Any]:
    fields = compare_fields(uninterrupted.state(), resumed.state())
    first = first_difference(uninterrupted.rows, resumed.rows, _SHOWN, tolerance=0.0)
    equal = first is None and all(comparison.within(0.0) for comparison in fields.values())
    return {
        "compared": True, "all_checks_passed": equal, "first_difference": first,
        "state": {name: comparison.to_json() for name, comparison in fields.items()},
    }  # fmt: skip


def _leave(folder: Path, label: str, training: Training, steps: int, checkpoint: str | None) -> None:
    folder.mkdir()
    digest = write_checkpoint(folder / CHECKPOINT, training.body())
    Trace(f"lab linreg, {label}", 1, BATCH, ROWS, steps, (training.start,), tuple(training.records)).write(
        folder / TRACE_FILE
    )
    write_json(folder / SUMMARY, {"training": label, "restored_from": checkpoint, "checkpoint_digest": digest,
                                  **_end(training)})
