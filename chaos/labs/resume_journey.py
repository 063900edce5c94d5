"""One journey of `lab resume`, in a fresh process: `python -m chaos.labs.resume_journey REQUEST`, REQUEST being JSON.

It creates its folder and leaves checkpoint, digest, trace and summary there. Exit status 0, or 2 with the reason on
standard error.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chaos.diff.trace import TRACE_FILE, Trace
from chaos.labs.choices import Omission
from chaos.labs.files import CHECKPOINT, SUMMARY, new_folder, read_checkpoint, write_checkpoint, write_json
from chaos.shell import errors_reported


@dataclass(frozen=True)
class Request:
    """name: of the journey. updates: to be done here. checkpoint: to start from, None for the beginning."""

    name: str
    folder: str
    updates: int
    checkpoint: str | None = None
    omit: tuple[str, ...] = ()

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Request:
        fields = json.loads(text)
        return cls(**{**fields, "omit": tuple(fields["omit"])})


def travel(request: Request) -> None:
    """Does the journey. Raises OutputExists, CheckpointRefused, LabError."""
    import torch

    from chaos.labs.resume_data import BATCH, ROWS, THREADS
    from chaos.labs.resume_task import Training

    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(True)
    digest = None
    if request.checkpoint is None:
        training = Training()
    else:
        path = Path(request.checkpoint)
        body, _, digest = read_checkpoint(path)
        training = Training.restored(body, path, digest, frozenset(map(Omission, request.omit)))
    folder = new_folder(Path(request.folder), "resume")
    start = training.start.step
    training.run(request.updates)
    summary: dict[str, Any] = {
        "journey": request.name, "pid": os.getpid(), "omitted": list(request.omit), "restored_from": digest,
        "from_step": start, "to_step": training.step, "observations": sum(len(row["ids"]) for row in training.rows),
        "steps": training.rows, "next_rate": training.rate, "evaluation": training.evaluation(),
        "next_draws": training.next_draws(), "loss_history": list(training.loss_history),
    }  # fmt: skip
    checkpoint_digest = write_checkpoint(folder / CHECKPOINT, training.body())
    label, records = f"lab resume, {request.name}", tuple(training.records)
    Trace(label, 1, BATCH, ROWS, training.step, (training.start,), records).write(folder / TRACE_FILE)
    write_json(folder / SUMMARY, {**summary, "checkpoint_digest": checkpoint_digest})


def main() -> None:
    """Entry point of the fresh process."""
    import typer

    try:
        with errors_reported():
            travel(Request.from_text(sys.argv[1]))
    except typer.Exit as end:
        sys.exit(end.exit_code)


if __name__ == "__main__":
    main()
