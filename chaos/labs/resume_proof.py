"""Making and judging the proof of `lab resume`: journeys in fresh processes, compared by what they left on disk.

The check passes only if the full resume equals the continuous journey and every incomplete resume is caught. Without
torch: whoever compares has not computed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.errors import CheckpointRefused, LabError
from chaos.labs.choices import GENERATORS, Omission
from chaos.labs.compare import TOLERANCE, Comparison, compare, compare_fields, first_difference
from chaos.labs.files import (
    CHECKPOINT,
    COMMAND,
    REPORT,
    SUMMARY,
    new_folder,
    read_checkpoint,
    read_json,
    write_bytes_with_digest,
    write_json,
    write_new,
)
from chaos.labs.identity import check_identity
from chaos.labs.resume_data import FORMAT, expected_identity
from chaos.labs.resume_journey import Request

CUT_STEP = 5
_SOURCES = Path(__file__).resolve().parents[2]  # a journey runs the code that compares it, wherever it is started
Notify = Callable[[str], None]
_SHOWN = (("sample ids", ("ids",)), ("rate", ("rate",)), ("loss", ("loss",)), ("buffers", ("buffers",)),
          ("parameters", ("parameters",)))
_STATE = ("parameters", "buffers", "optimizer", "scheduler", "progress")


@dataclass(frozen=True)
class Journey:
    """What one journey left, both digests of its checkpoint verified."""

    name: str
    folder: Path
    body: Mapping[str, Any]
    summary: Mapping[str, Any]



def prove(
    updates: int, output: Path | None, checkpoint: Path | None, omit: Sequence[Omission], command: str, notify: Notify
) -> tuple[dict[str, Any], Path]:
    """The report, as `--json` prints it, and its folder. Raises OutputExists, LabError.

    updates: after the cut. checkpoint: cut of an earlier proof, None to make one at step 5. omit: one incomplete
    journey for each; none means one without any generator.
    """
    given = None if checkpoint is None else _given(checkpoint)
    folder = new_folder(output, "resume")
    write_new(folder / COMMAND, f"{command}\n".encode())
    if given is None:
        step, checkpoint = CUT_STEP, folder / "cut" / CHECKPOINT
    else:
        step, checkpoint = given[0], folder / CHECKPOINT
        write_bytes_with_digest(checkpoint, given[1])

    def resumed(what: str, omitted: tuple[Omission, ...]) -> Request:
        return Request(what, str(folder / what.replace(" ", "-")), updates, str(checkpoint), omitted)

    begin = [Request("continuous", str(folder / "continuous"), step + updates)]
    begin += [Request("cut", str(folder / "cut"), step)] if given is None else []
    singles: list[tuple[Omission, ...]] = [(one,) for one in omit]
    incomplete = [resumed(f"without {names[0].value}", names) for names in singles]
    incomplete = incomplete or [resumed("without generators", GENERATORS)]
    continuous, *cut = _travel(begin, notify)
    full, *negative = _travel([resumed("full resume", ()), *incomplete], notify)
    report = {"lab": "resume", "command": command, "additional_steps": updates, "cut_step": step,
              "tolerance": TOLERANCE, **judge(continuous, cut[0] if cut else None, full, negative)}
    write_json(folder / REPORT, report)
    return report, folder


def _given(checkpoint: Path) -> tuple[int, bytes]:
    """Step and bytes of an earlier proof's checkpoint, before anything is written. Raises CheckpointRefused."""
    body, data, _ = read_checkpoint(checkpoint)
    check_identity(body, FORMAT, expected_identity(), checkpoint)
    step = body["progress"].get("step") if isinstance(body.get("progress"), dict) else None
    if type(step) is not int or step < 1:
        raise CheckpointRefused(f"{checkpoint}: does not say after which step it was made, but {step!r:.40}")
    return step, data


def judge(
    continuous: Journey, cut: Journey | None, full: Journey, incomplete: Sequence[Journey]
) -> dict[str, Any]:
    """The comparisons, and what they come to. cut is None where it was made by an earlier proof."""
    positive = _compared(continuous, full)
    negative = [_compared(continuous, journey) for journey in incomplete]
    caught = bool(negative) and not any(comparison["equal"] for comparison in negative)
    begun = None
    if cut is not None:
        begun = first_difference(continuous.summary["steps"], cut.summary["steps"], _SHOWN, TOLERANCE)
    journeys = [journey for journey in (continuous, cut, full, *incomplete) if journey is not None]
    return {
        "all_checks_passed": positive["equal"] and caught and begun is None,
        "positive": positive, "negative": negative, "negative_divergence_detected": caught,
        "cut_equals_continuous": begun is None,
        "journeys": {journey.name: {"folder": str(journey.folder), **journey.summary} for journey in journeys},
    }  # fmt: skip


def _compared(continuous: Journey, other: Journey) -> dict[str, Any]:
    start = other.summary["from_step"]
    expected, found = _fields(continuous, start), _fields(other, start)
    fields = compare_fields(expected, found)
    weights = compare(_numbers(expected["parameters"]), _numbers(found["parameters"]))
    return {
        "journey": other.name, "omitted": other.summary["omitted"],
        "equal": all(comparison.within(TOLERANCE) for comparison in fields.values()),
        "deviation": max(comparison.deviation for comparison in fields.values()),
        "first_difference": first_difference(continuous.summary["steps"], other.summary["steps"], _SHOWN, TOLERANCE),
        "weight_deviation": weights.deviation,
        "mse": found["evaluation"], "mse_difference": found["evaluation"] - expected["evaluation"],
        "differs_in": [name for name, comparison in fields.items() if not comparison.within(TOLERANCE)],
        "fields": {name: _short(comparison) for name, comparison in fields.items()},
    }  # fmt: skip


def _fields(journey: Journey, after: int) -> dict[str, Any]:
    """Everything that is compared, of the steps after the cut."""
    summary, body = journey.summary, journey.body
    steps = [row for row in summary["steps"] if row["step"] > after]
    return {
        "consumed ids": [row["ids"] for row in steps],
        "rates": [row["rate"] for row in steps] + [summary["next_rate"]],
        "losses": [row["loss"] for row in steps],
        **{part: body[part] for part in _STATE},
        "loss history": summary["loss_history"],
        "evaluation": summary["evaluation"],
        **{f"state of the {name} generator": state for name, state in body["rng"].items()},
        **{f"next draws of the {name} generator": draws for name, draws in summary["next_draws"].items()},
    }


def _numbers(tensors: Mapping[str, Any]) -> dict[str, list[float]]:
    return {name: tensor["values"] for name, tensor in tensors.items()}


def _short(comparison: Comparison) -> dict[str, Any]:
    kept = comparison.unequal[:3]
    return {**comparison.to_json(), "unequal": [*kept, *(["…"] if len(comparison.unequal) > len(kept) else [])]}


def _travel(requests: Sequence[Request], notify: Notify) -> list[Journey]:
    """Every journey in a process of its own. Raises LabError with the processes' words."""
    for request in requests:
        notify(request.name)
    arguments = [sys.executable, "-m", "chaos.labs.resume_journey", *(request.to_text() for request in requests)]
    sources = os.pathsep.join([str(_SOURCES), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": sources}
    ended = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    said = ended.stderr.strip().removeprefix("killpoint: ") or "said nothing"
    if ended.returncode != 0:
        raise LabError(f"journeys (status {ended.returncode}): {said}")
    failed = [f"{name} (status {status})" for name, status in json.loads(ended.stdout).items() if status != 0]
    if failed:
        raise LabError(f"journey {', '.join(failed)}: {said}")
    return [_left_by(request) for request in requests]


def _left_by(request: Request) -> Journey:
    """Raises LabError."""
    folder = Path(request.folder)
    body, _, digest = read_checkpoint(folder / CHECKPOINT)
    summary = read_json(folder / SUMMARY)
    if summary.get("checkpoint_digest") != digest:
        raise LabError(f"{folder}: its summary is not of the checkpoint beside it")
    return Journey(request.name, folder, body, summary)
