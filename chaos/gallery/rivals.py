"""Several supervisors that resume one run at once, each in a process of its own, with a defect planted in all of them.

`python -m chaos.gallery.rivals FOLDER KEY CONTROL run EXPERIMENT OUTPUT` and `… resume RUN` are those processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from unittest.mock import patch

from chaos.cluster import ray_address
from chaos.gallery.carrier import Carrier, Planted
from chaos.runfolder import HISTORY
from storage.history import read_history

_DEADLINE_S = 120.0


def conduct_rivals(planted: Planted, file: Path, folder: Path, rivals: int) -> None:
    """The run until its supervisor is killed, then `rivals` supervisors at once that take it up."""
    _wait([_begin(planted, "run", str(file), str(folder))])
    _wait([_begin(planted, "resume", str(folder)) for _ in range(rivals)])
    _end_left_over(folder)


def _end_left_over(folder: Path) -> None:
    """Nobody has ended the processes of the supervisor that was killed: they would keep their room."""
    from trainers.predecessors import end_in_ray

    for path in (folder / HISTORY).glob("supervisor-*.jsonl"):
        for line in read_history(path).lines:
            if line.event == "pool":
                end_in_ray(line.body["namespace"])


def _begin(planted: Planted, *arguments: str) -> subprocess.Popen[bytes]:
    own = [str(planted.folder), planted.key, "control" if planted.control else "plant"]
    return subprocess.Popen(
        [sys.executable, "-m", "chaos.gallery.rivals", *own, *arguments], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env={**os.environ, "RAY_ADDRESS": ray_address()},
    )  # fmt: skip


def _wait(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        try:
            process.wait(_DEADLINE_S)
        except BaseException:
            for each in processes:
                each.kill()
            raise


def main() -> None:
    """One supervisor."""
    from chaos import life
    from chaos.experiment import load_experiment
    from chaos.run import find_resumable, resume_experiment, run_experiment

    folder, key, which, what, *places = sys.argv[1:]
    planted = Planted(Path(folder), key, which == "control")
    with patch.object(life, "Striker", partial(Carrier, planted)):
        if what == "run":
            run_experiment(load_experiment(Path(places[0])), Path(places[1]))
        else:
            resume_experiment(find_resumable(Path(places[0])))


if __name__ == "__main__":
    main()
