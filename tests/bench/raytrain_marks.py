"""What processes of a training under Ray Train write down, and what each recovery cost by it. Standard library only.

A mark is one line of JSON, {"what", "t_ns", …}, in a file of its process; `t_ns` is CLOCK_MONOTONIC, one clock for all
processes of a host. A strike is a file of its own, created exclusively and synced before the process kills itself, so
that each strikes once, and whoever starts counts the strikes to know which attempt it is in.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

Mark = Mapping[str, Any]


@dataclass(frozen=True)
class Recovery:
    """Seconds from a kill on: until it was detected, until the last rank was in a new group, until the last rank had
    the checkpoint's state, until the first new optimizer step was done, until the first rank was back where it was.

    redone_steps: updates done before the kill, and again after it.
    """

    detected_s: float
    up_s: float
    restored_s: float
    first_step_s: float
    caught_up_s: float
    restored_step: int
    redone_steps: int


class Marks:
    """The marks of one process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(folder / f"{os.getpid()}.jsonl", flags, 0o644)

    def note(self, what: str, **fields: object) -> None:
        """One line in one write: it outlives the process."""
        os.write(self._fd, _line(what, fields))

    def strike(self, attempt: int, **fields: object) -> NoReturn:
        """Kills this process, with proof."""
        path = self._folder / f"strike-{attempt}.json"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(fd, _line("struck", {"attempt": attempt, **fields}))
        os.fsync(fd)
        folder = os.open(self._folder, os.O_RDONLY)
        os.fsync(folder)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("a process outlived SIGKILL")


def strikes(folder: Path) -> int:
    """How often it has struck so far, which is the number of the attempt that starts now."""
    return len(list(folder.glob("strike-*.json")))


def read_marks(folder: Path) -> list[Mark]:
    """All marks and strikes, in order of time. A last line that was cut short by a kill is left out."""
    lines = [line for path in sorted(folder.glob("*.json*")) for line in path.read_text().split("\n")[:-1]]
    return sorted((json.loads(line) for line in lines), key=lambda mark: int(mark["t_ns"]))


def recoveries(marks: Iterable[Mark], ranks: int) -> list[Recovery]:
    """One for each strike. Raises ValueError if the attempt after it does not show all that a recovery consists of."""
    marks = list(marks)
    return [_recovery(marks, mark, ranks) for mark in marks if mark["what"] == "struck"]


def _recovery(marks: list[Mark], strike: Mark, ranks: int) -> Recovery:
    attempt, struck_ns = int(strike["attempt"]) + 1, int(strike["t_ns"])
    later = [mark for mark in marks if int(mark["t_ns"]) > struck_ns]

    def of(what: str) -> list[Mark]:
        return [mark for mark in later if mark["what"] == what and mark.get("attempt", attempt) == attempt]

    ups, restored = of("up"), of("restored")
    if not {mark["rank"] for mark in ups} == {mark["rank"] for mark in restored} == set(range(ranks)):
        raise ValueError(f"attempt {attempt}: not every one of {ranks} ranks came up and restored its state")
    before = max((int(m["step"]) for m in marks if m["what"] == "step" and m["attempt"] < attempt), default=0)
    done, starts = of("step"), {int(mark["step"]) for mark in restored}
    caught_up = [mark for mark in done if int(mark["step"]) >= before]
    detected = of("detected")
    if len(starts) != 1 or not detected or not caught_up:
        raise ValueError(f"attempt {attempt}: not detected, not caught up, or ranks restored different steps: {starts}")

    def since(mark: Mark) -> float:
        return (int(mark["t_ns"]) - struck_ns) / 1e9

    start = starts.pop()
    return Recovery(since(detected[0]), since(ups[-1]), since(restored[-1]), since(done[0]), since(caught_up[0]), start,
                    before - start)  # fmt: skip


def _line(what: str, fields: Mapping[str, object]) -> bytes:
    return json.dumps({"what": what, "t_ns": time.monotonic_ns(), **fields}).encode() + b"\n"
