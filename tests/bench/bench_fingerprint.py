"""What a step's record costs beside the step itself, on the default experiment's model: fingerprint and gradient norm.

python tests/bench/bench_fingerprint.py [--rounds 40]: one line of JSON, medians and the share of the step.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch

from chaos.experiment import load_experiment
from trainers.fingerprint import Views, step_fingerprint
from trainers.reducer import Reducer
from trainers.state import Progress
from trainers.workload import build


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    settings = load_experiment(None).run
    workload, progress = build(settings.workload, settings.config), Progress()
    rows = settings.global_batch // settings.ranks // settings.microbatches
    tokens = torch.randint(0, 256, (rows, 65), dtype=torch.uint8)
    reducer = Reducer(workload.model, 1)

    def step() -> None:
        reducer.zero()
        for _ in range(settings.microbatches):
            (workload.loss(workload.model, {"tokens": tokens}).sum() / settings.global_batch).backward()
        workload.optimizer.step()
        progress.advance(1.0, settings.global_batch, skipped=False)

    views = Views()
    step_s, print_s, norm_s = (
        median(action, rounds) for action in (step, lambda: step_fingerprint(workload, progress, views), reducer.norm)
    )
    print(json.dumps({
        "bench": "fingerprint", "rounds": rounds, "step_s": round(step_s, 5), "fingerprint_s": round(print_s, 6),
        "norm_s": round(norm_s, 6), "share_of_step": round((print_s + norm_s) / step_s, 4),
    }))  # fmt: skip


def median(action: Callable[[], object], rounds: int) -> float:
    """Seconds, of the calls after the first."""
    times = []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


if __name__ == "__main__":
    main()
