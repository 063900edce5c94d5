"""Time to the first microbatch of a rank's input, with ten and with a million steps remaining, at two cursors.

python tests/bench/bench_pipeline.py: one line of JSON; the cost must not grow with what remains.
"""

from __future__ import annotations

import json
import logging
import statistics
import time

import ray

from trainers.dataset import open_dataset
from trainers.pipeline import Pipeline, configure_ray_data
from trainers.plan import Plan
from trainers.points import NoPoints
from trainers.source import Share
from trainers.workload import build

ROUNDS = 7


def first_batch_s(first_step: int, last_step: int) -> float:
    dataset = open_dataset(build("tiny", {}).dataset)
    plan = Plan(dataset.rows, dataset.group_rows, 4, 1)
    started = time.perf_counter()
    pipeline = Pipeline(dataset, plan, Share(0, 2, 16, 2), first_step=first_step, last_step=last_step, prefetch=2,
                        attempt=0, points=NoPoints())
    pipeline.start()
    pipeline.next()
    elapsed = time.perf_counter() - started
    pipeline.close()
    time.sleep(0.3)  # lets the stream end, so that rounds do not slow each other
    return elapsed


def main() -> None:
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    configure_ray_data()
    first_batch_s(0, 10)
    cases = {"ten": (0, 10), "million": (0, 1_000_000), "million_from_the_middle": (10_000_000, 11_000_000)}
    times = {name: [first_batch_s(*case) for _ in range(ROUNDS)] for name, case in cases.items()}
    median = {name: statistics.median(values) for name, values in times.items()}
    print(json.dumps({"bench": "pipeline_start", **{f"{n}_s": round(v, 4) for n, v in median.items()},
                      "million_over_ten": round(median["million"] / median["ten"], 2)}))
    ray.shutdown()


if __name__ == "__main__":
    main()
