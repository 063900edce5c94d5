"""How many trials a second a sweep of `tiny` does, beside its floor: the processor time of the processes it replaces.

python tests/bench/bench_sweep.py [--trials 60]: one line of JSON. Kills of ranks and of the committer, receipts,
recovery and audit included; Ray's start and the two recording runs are not. `cpu_s`: processor time of the whole
machine in the trials, each; on two processors no sweep is faster than half of it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import psutil

from chaos.experiment import packaged_experiment
from chaos.sweep.command import Choice, Watch, sweep
from chaos.sweep.results import Result
from chaos.sweep.trials import Trial


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=60)
    trials = parser.parse_args().trials
    began: list[tuple[float, float]] = []
    ended: list[tuple[float, float]] = []
    durations: list[float] = []

    def trial(which: Trial) -> None:
        if not which.own_supervisor:
            began.append((time.perf_counter(), _busy_s()))

    def result(what: Result) -> None:
        if what.role != "supervisor":
            ended.append((time.perf_counter(), _busy_s()))
            durations.append(what.duration_s)

    with tempfile.TemporaryDirectory() as folder:
        choice = Choice(sample=trials, seed=1, ranks=(0, 1))
        swept = sweep(packaged_experiment("sweep.yaml"), Path(folder) / "sweep", choice, 60.0,
                      Watch(trial=trial, result=result))  # fmt: skip
    seconds, busy_s = (ended[-1][i] - began[1][i] for i in (0, 1))  # the first trial trains the twin besides
    count = len(ended) - 1
    print(json.dumps({
        "bench": "sweep", "verdict": swept.summary.verdict, "trials": count, "trials_per_s": round(count / seconds, 2),
        "median_s": round(statistics.median(durations[1:]), 2), "cpu_s": round(busy_s / count, 2),
        "processors": os.cpu_count(), "floor_s": round(busy_s / count / (os.cpu_count() or 1), 2),
    }))  # fmt: skip


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


if __name__ == "__main__":
    main()
