"""Reading what a run left behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chaos.cli import app
from chaos.run import Outcome
from storage.history import read_history
from storage.log import CommitLog, Publish
from storage.manifest import decode, manifest_path
from storage.objects import LocalObjects

TINY = {
    "workload": "tiny", "seed": 3, "ranks": 2, "global_batch": 16, "microbatches": 2, "steps": 20, "save_every": 3,
    "keep": 3, "standbys": 1, "twin": False,
}


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str


def command(capfd: pytest.CaptureFixture[str], *arguments: object) -> Ended:
    """`killpoint ARGUMENTS` in this process, on the session's Ray: a process of its own would have to join that first.

    It starts the processes of its runs anew, as in a process of its own.
    """
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        app([str(argument) for argument in arguments])
    out, err = capfd.readouterr()
    return Ended(int(ended.value.code or 0), out, err)


def events(folder: Path, role: str, event: str) -> list[dict[str, Any]]:
    """Bodies of one kind of event in all histories of a role, file by file."""
    files = sorted((folder / "history").glob(f"{role}-*.jsonl"))
    return [line.body for file in files for line in read_history(file).lines if line.event == event]


def explain(outcome: Outcome) -> str:
    """Why the verdict is what it is, for an assertion's message."""
    wrong = [f"{i['id']} {i['verdict']}: {i['witness']}" for i in outcome.verdict["invariants"]
             if i["verdict"] not in ("valid", "not_judged")]
    return f"{outcome.folder} {outcome.verdict['verdict']} {outcome.failure} {wrong}"


def invariant(outcome: Outcome, number: int) -> str:
    return next(i["verdict"] for i in outcome.verdict["invariants"] if i["id"] == number)


def last_parts(folder: Path) -> dict[str, str]:
    """Digests of all parts of the newest published checkpoint, of every rank."""
    objects = LocalObjects(folder / "store")
    run = events(folder, "supervisor", "run")[0]["run"]
    last = [entry for entry in CommitLog(objects, run).read() if isinstance(entry, Publish)][-1]
    manifest, _ = decode(objects.read(manifest_path(last.name)), last.name)
    own = {f"{rank.rank}/{part}": digest for rank in manifest.ranks for part, digest in rank.parts.items()}
    return {**manifest.parts, **own}


def kill(point: str, hit: int, *, attempt: int = 0, role: str = "rank", rank: int | None = None,
         kind: str = "sigkill") -> dict[str, Any]:
    """A fault as the experiment file has it."""
    at: dict[str, Any] = {"attempt": attempt, "role": role, "point": point, "hit": hit}
    if rank is not None:
        at["rank"] = rank
    return {"kind": kind, "at": at}
