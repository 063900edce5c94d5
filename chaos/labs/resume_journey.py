"""Journeys of `lab resume`, each in a fresh process: `python -m chaos.labs.resume_journey REQUEST…`, in JSON.

Each creates its folder and leaves checkpoint, digest, trace and summary there. Their processes are forked from one that
has imported torch, which takes far longer than a journey, and computed nothing. On standard output: JSON, name →
exit status; 0, or 2 with the reason on standard error.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
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


def _travel_alone(request: Request) -> None:
    """In a process of its own."""
    import typer

    try:
        with errors_reported():
            travel(request)
    except typer.Exit as end:
        sys.exit(end.exit_code)


def main() -> None:
    """Entry point of the process that the journeys' own are forked from."""
    for name in ("torch._dynamo", "chaos.labs.resume_task"):  # the first is what optimizers import when one is made
        importlib.import_module(name)

    requests = [Request.from_text(text) for text in sys.argv[1:]]
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=_travel_alone, args=(request,)) for request in requests]
    for child in children:
        child.start()
    for child in children:
        child.join()
    print(json.dumps({request.name: child.exitcode for request, child in zip(requests, children, strict=True)}))


if __name__ == "__main__":
    main()
