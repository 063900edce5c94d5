"""`python -m chaos.sweep.job DESCRIPTOR`: a process that conducts the trials of a sweep that it is given.

Over the socket come lines of JSON: what all trials have in common (`jobs.Setting`), then one trial after another, each
when the one before is answered. The end of the lines is the end of the work; so is Ctrl-C, in the middle of a trial.
"""

from __future__ import annotations

import json
import socket
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from chaos.errors import ChaosError
from chaos.experiment import parse_experiment
from chaos.interrupts import Interrupts
from chaos.life import Place, cpus_of
from chaos.sweep.conduct import SPARES, Conductor, Task
from chaos.sweep.jobs import Setting
from storage.errors import StorageError
from trainers.errors import TrainingError


def main(descriptor: int) -> int:
    """Exit status 0 after the last trial, 130 after an interrupt."""
    try:
        with socket.socket(fileno=descriptor) as channel, channel.makefile("rw", encoding="utf-8") as lines:
            _work(lines)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 1  # nobody is there any more who could be told
    return 0


def _work(lines: TextIO) -> None:
    setting = Setting(**json.loads(lines.readline()))
    experiment = parse_experiment(setting.experiment, Path(setting.file))
    with Interrupts() as interrupts, Place(interrupts, reuse=True, spares=SPARES) as place:
        place.enter(cpus_of(experiment.run), experiment.run.fork_workers)
        conductor = Conductor(experiment, Path(setting.folder), place, setting.deadline_s)
        while line := lines.readline():
            _tell(lines, _answer(conductor, line), interrupts)


def _answer(conductor: Conductor, line: str) -> dict[str, object]:
    try:
        return {"result": asdict(conductor.carry_out(Task.from_json(json.loads(line))))}
    except (ChaosError, StorageError, TrainingError, OSError) as error:
        return {"error": str(error)}


def _tell(lines: TextIO, answer: dict[str, object], interrupts: Interrupts) -> None:
    """Whole, or not at all."""
    with interrupts.deferred():
        lines.write(json.dumps(answer) + "\n")
        lines.flush()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
