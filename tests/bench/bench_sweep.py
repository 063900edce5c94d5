"""How many trials a second a sweep of `tiny` does, beside its floor: the processor time of the processes it replaces.

python tests/bench/bench_sweep.py [--trials 60] [--jobs 1]: one line of JSON. Kills of ranks and of the committer,
receipts, recovery and audit included; Ray's start, the two recording runs and the first trial of each job are not.
`cpu_s`: processor time of this program and all its processes, each trial; on two processors no sweep is faster than
half of it. `busy`: that of the whole machine, as a part of what there is; beside other work the rates say little.

python tests/bench/bench_sweep.py --same --trials 150: one trial, again and again, whether trials grow slower. Two lines
of JSON, of the first and of the last third: seconds a trial, processor seconds a trial by what used them, and what has
grown in number.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import ray

from chaos.experiment import packaged_experiment
from chaos.interrupts import Interrupts
from chaos.life import Place
from chaos.points import CATALOGUE, Role
from chaos.sweep.command import Choice, Watch, sweep
from chaos.sweep.conduct import SPARES, Conductor
from chaos.sweep.record import record
from chaos.sweep.results import Result
from chaos.sweep.trials import singles

_OFTEN_KILLED = "rank1/microbatch.backward/11"
_OWN = ("gcs_server", "raylet", "log_monitor", "dashboard", "agent", "forkserver", "launcher")  # in a command line


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--same", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.same:
            print_growth(Path(folder), given.trials)
        else:
            print(json.dumps(pace(Path(folder) / "sweep", given.trials, given.jobs)))


def pace(folder: Path, trials: int, jobs: int) -> dict[str, object]:
    """Of trials that are not those of a supervisor of their own, which are two processes more."""
    ended: list[tuple[float, float, float]] = []
    durations: list[float] = []

    def result(what: Result) -> None:
        ended.append((time.perf_counter(), _own_s(), _busy_s()))
        durations.append(what.duration_s)

    points = tuple(name for name, point in CATALOGUE.items() if Role.SUPERVISOR not in point.roles)
    choice = Choice(points, sample=trials, seed=1)
    swept = sweep(packaged_experiment("sweep.yaml"), folder, choice, 60.0, Watch(result=result), jobs)
    seconds, own_s, busy_s = (ended[-1][i] - ended[jobs - 1][i] for i in range(3))  # every job is warm by then
    count, processors = len(ended) - jobs, os.cpu_count() or 1
    return {
        "bench": "sweep", "verdict": swept.summary.verdict, "jobs": jobs, "trials": count,
        "trials_per_s": round(count / seconds, 2), "median_s": round(statistics.median(durations[jobs:]), 2),
        "cpu_s": round(own_s / count, 2), "processors": processors, "floor_s": round(own_s / count / processors, 2),
        "busy": round(busy_s / seconds / processors, 2), "with_start_s": round(swept.pace.seconds, 1),
    }  # fmt: skip


@dataclass
class Moment:
    """After one trial. cpu_s: of all of this program's processes that live, by what they are."""

    seconds: float
    cpu_s: Counter[str] = field(default_factory=Counter)
    counts: dict[str, int] = field(default_factory=dict)


def print_growth(folder: Path, trials: int) -> None:
    moments: list[Moment] = []
    experiment = packaged_experiment("sweep.yaml")
    with Interrupts() as interrupts, Place(interrupts, reuse=True, spares=SPARES) as place:
        outline = record(experiment, folder, place, lambda text: None)
        trial = next(trial for trial in singles(outline) if trial.name == _OFTEN_KILLED)
        conductor = Conductor(experiment, folder, place, 60.0)
        for number in range(trials + 1):
            result = conductor.conduct(replace(trial, name=f"{trial.name}-{number}"))
            assert result.good, result.why
            moments.append(_moment(result.duration_s))
    third = trials // 3
    for first, last in ((0, third), (trials - third, trials)):
        print(json.dumps(_between(moments, first, last)))


def _between(moments: list[Moment], first: int, last: int) -> dict[str, object]:
    before, after, count = moments[first], moments[last], last - first
    used = {what: round((after.cpu_s[what] - before.cpu_s[what]) / count, 3) for what in sorted(after.cpu_s)}
    median = statistics.median(moment.seconds for moment in moments[first + 1 : last + 1])
    return {
        "bench": "sweep, the same trial", "trials": f"{first + 1} to {last}", "median_s": round(median, 3),
        "cpu_s": used, "before": before.counts, "after": after.counts,
    }  # fmt: skip


def _moment(seconds: float) -> Moment:
    own, logs = psutil.Process(), Path(ray._private.worker._global_node.get_logs_dir_path())
    counts = {
        "threads": threading.active_count(), "handles": own.num_fds(), "memory_mib": own.memory_info().rss >> 20,
        "logs": sum(1 for _ in logs.iterdir()), "moved_logs": sum(1 for _ in (logs / "old").iterdir()),
    }  # fmt: skip
    found = Moment(seconds, Counter({"this": sum(own.cpu_times()[:2])}), counts)
    found.cpu_s["whole machine"] = _busy_s()
    for process in own.children(recursive=True):
        try:
            line = " ".join(process.cmdline())
            what = next((name for name in _OWN if name in line), "others")
            if what not in ("others", "launcher"):  # those come and go
                found.cpu_s[what] += sum(process.cpu_times()[:2])
                found.counts[f"{what} MiB"] = process.memory_info().rss >> 20
        except psutil.NoSuchProcess:
            continue
    return found


def _own_s() -> float:
    """Of this process and all that descend from it, those included that have ended and were waited for."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def _busy_s() -> float:
    """Of the whole machine."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


if __name__ == "__main__":
    main()
