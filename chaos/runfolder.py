"""The folder of a run: created once, never overwritten, read again to resume. The README shows its layout."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.errors import CannotCreate, NotARun, OutputExists
from chaos.experiment import Experiment
from chaos.gates import create_gate
from storage.errors import StorageError
from storage.history import Head, HistoryFile, read_history
from storage.process import ProcessId, is_alive

EXPERIMENT, STORE, HISTORY, VERDICT = "experiment.yaml", "store", "history", "verdict.json"


@dataclass(frozen=True)
class Predecessor:
    """A supervisor of this run that did not end in order, and how far it had recorded."""

    process: ProcessId
    head: Head
    alive: bool

    def to_json(self) -> dict[str, Any]:
        """The form that it has in the `resumed` event."""
        return {
            "file": self.head.file,
            "pid": self.process.pid,
            "start_ticks": self.process.start_ticks,
            "head": self.head.as_dict(),
        }


@dataclass(frozen=True)
class Recorded:
    """What the run's supervisors recorded, and who came before the one that resumes it.

    `attempt`: the last one that was fenced. `code`, `dataset`: as the first look at them found them; None before that.
    """

    run: str
    seed: int
    workload: str
    config_digest: str
    training_digest: str
    finished: bool
    predecessors: tuple[Predecessor, ...]
    attempt: int | None
    code: Mapping[str, Any] | None
    dataset: Mapping[str, Any] | None


def new_run_id(experiment: Experiment) -> str:
    """A name that no other run has; begins with the workload's."""
    return f"{short_name(experiment.run.workload)}-{secrets.token_hex(5)}"


def short_name(workload: str) -> str:
    """`model` for `path/to/model.py:build` and for `package.model:build`: fit for the name of a folder."""
    place = workload.rpartition(":")[0] or workload
    last = Path(place).stem if place.endswith(".py") else place.rpartition(".")[2]
    return "".join(letter for letter in last if letter.isalnum() or letter == "_") or "run"


def create(folder: Path, experiment: Experiment) -> None:
    """Makes the folder of a new run. Raises OutputExists; nothing is overwritten."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    except FileExistsError:
        if not folder.parent.is_dir():
            raise CannotCreate(f"{folder}: cannot be created: {folder.parent} is no folder") from None
        raise OutputExists(
            f"{folder}: exists already and was left as it is; choose another --output, or --resume it"
        ) from None
    except OSError as error:
        raise CannotCreate(f"{folder}: cannot be created: {error.strerror}; choose another --output") from error
    for name in ("log", "manifests", "shards", "ledger", "tmp", "quarantine"):
        (folder / STORE / name).mkdir(parents=True)
    for name in ("receipts", "gates"):
        (folder / HISTORY / name).mkdir(parents=True)
    for parent in (folder / STORE, folder / HISTORY, folder, folder.parent):  # who finds a folder takes it for durable
        _sync(parent)
    with (folder / EXPERIMENT).open("x", encoding="utf-8") as file:
        file.write(experiment.text)
        file.flush()
        os.fsync(file.fileno())
    for fault in experiment.faults:
        if fault.gate is not None:
            create_gate(folder, fault.id)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_recorded(folder: Path) -> Recorded:
    """What a run that is to be resumed has recorded. Raises NotARun."""
    if not (folder / EXPERIMENT).is_file() or not (folder / HISTORY).is_dir():
        raise NotARun(f"{folder}: is no run: it has no {EXPERIMENT} or no {HISTORY}/")
    try:
        files = [read_history(path) for path in sorted((folder / HISTORY).glob("supervisor-*.jsonl"))]
        bodies = [line.body for file in files for line in file.lines]
        run = next(body for body in bodies if body["event"] == "run")
        looked: Mapping[str, Any] = next((body for body in bodies if body["event"] == "dataset"), {})
        return Recorded(
            run["run"],
            run["seed"],
            run["workload"],
            run["config_digest"],
            run["training_digest"],
            any(body["event"] == "finished" for body in bodies),
            tuple(_predecessors(files)),
            max((body["attempt"] for body in bodies if body["event"] == "fenced"), default=None),
            looked.get("code"),
            looked.get("dataset"),
        )
    except StopIteration:
        raise NotARun(f"{folder}: its history does not say what was run; it cannot be resumed") from None
    except (StorageError, KeyError) as error:
        raise NotARun(f"{folder}: its history cannot be read, so it cannot be resumed: {error}") from error


def _predecessors(files: list[HistoryFile]) -> Iterator[Predecessor]:
    for file in files:
        if file.closed or file.head is None:
            continue
        opened: Mapping[str, Any] = file.lines[0].body
        process = ProcessId(opened["host"], opened["pid"], opened["start_ticks"])
        yield Predecessor(process, file.head, _may_live(process))


def _may_live(process: ProcessId) -> bool:
    try:
        return is_alive(process)
    except StorageError:  # of another host: cannot be known from here
        return True


def heads(folder: Path, without: str) -> list[Head]:
    """How far every history of the run has come, except the file `without`. Broken ones are left out."""
    found = []
    for path in sorted((folder / HISTORY).glob("*.jsonl")):
        try:
            head = read_history(path).head if path.name != without else None
        except StorageError:
            continue
        if head is not None:
            found.append(head)
    return found
