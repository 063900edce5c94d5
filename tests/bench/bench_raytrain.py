"""The same job, the same kills, beside Ray Train: seconds from a kill to the first new optimizer step.

python tests/bench/bench_raytrain.py [--workload bytelm|tiny] [--runs 5] [--kills-a-run 2] [--json]

Four ways to train it, in turn, run after run, on one Ray of this command's own: `ray.train.torch.TorchTrainer` with its
defaults; the same with the settings that make it faster; this project with a warm standby; this project with no standby
and fresh processes. Every run is killed `--kills-a-run` times by SIGKILL, one rank after the other, each time by the
process itself in the middle of the accumulation, halfway between two checkpoints, after it had synced a mark with the
clock. All instants are CLOCK_MONOTONIC of one host, written by the processes that they are about. Beside each way an
uninterrupted twin, with which the last state is compared, part by part, by digest.

The job is the same to the bit: both trainers' twins have to end in the same state, and the output says whether they do.
What differs is the trainer's own: Ray Train reads its rows in the training process (`raytrain_job.py` says why), this
project through Ray Data; this project syncs and reads back what it saves, and digests and records every step. Ray is as
`ray.init` starts it: Ray Train's workers are started as they are anywhere, none is forked.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import ray
import yaml
from raytrain_marks import Recovery, read_marks, recoveries
from raytrain_plan import Failed, Job, Parts, compared, fault, kills_between, named_parts, recovery, require_planned
from raytrain_summary import Row, render, summary
from rich.console import Console
from rich.progress import Progress

from chaos.cluster import silence_worker_deaths
from chaos.experiment import load_experiment, packaged_experiment, parse_experiment
from chaos.forkclient import FORKSERVER_ENV
from chaos.forkserver import ForkServer
from chaos.interrupts import Interrupts
from chaos.life import Place
from chaos.report import print_results
from chaos.run import run_experiment
from storage.manifest import decode, parse_checkpoint_name

CPUS = 8
TUNED = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1",  # 2 by default: how often the controller looks at its workers
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # 1 by default: another actor to start with every group
    "RAY_TRAIN_METRICS_ENABLED": "0",
}
DEFAULTS = {"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "2 (default)", "others": "default"}
WARM: Mapping[str, Any] = {"standbys": 1, "fork_workers": True}
COLD: Mapping[str, Any] = {"standbys": 0, "fork_workers": False}
BETWEEN = {"bytelm": 60, "tiny": 200}  # updates; a new standby has to be warm before the next kill


def job_of(workload: str, kills: int, save_every: int, between: int) -> Job:
    """The default experiment, or that of the sweep, with other numbers of steps."""
    experiment = load_experiment(None) if workload == "bytelm" else packaged_experiment("sweep.yaml")
    run, steps = experiment.run, (kills + 1) * between
    config = {**run.config, "total_steps": steps} if workload == "bytelm" else dict(run.config)
    when = kills_between(kills, between, save_every, run.ranks)
    return Job(workload, config, run.seed, run.ranks, run.global_batch, run.microbatches, steps, save_every, run.keep,
               run.microbatches - 1, when)  # fmt: skip


def under_ray_train(job: Job, folder: Path, settings: Mapping[str, str]) -> tuple[list[Recovery], Parts]:
    """One run of Ray Train: its recoveries, and the digests of its last state. Raises Failed."""
    from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer
    from raytrain_job import Noted, train

    marks = folder / "marks"
    marks.mkdir(parents=True)
    with variables(settings):
        result = TorchTrainer(
            train, train_loop_config={"job": asdict(job), "marks": str(marks), "threads": threads()},
            scaling_config=ScalingConfig(num_workers=job.ranks),
            run_config=RunConfig(
                name="job", storage_path=str(folder / "storage"), callbacks=[Noted(str(marks))],
                failure_config=FailureConfig(max_failures=len(job.kills)),
                checkpoint_config=CheckpointConfig(num_to_keep=job.keep),
            ),
        ).fit()  # fmt: skip
    if result.error is not None or result.metrics is None or result.metrics["step"] != job.steps:
        raise Failed(f"Ray Train did not train to the end: {result.error}, {result.metrics}")
    seen = read_marks(marks)
    found = recoveries(seen, job.ranks)
    require_planned(job, found)
    ends = [named_parts(mark["rank"], mark["parts"]) for mark in seen if mark["what"] == "finished"]
    return found, {name: digest for parts in ends for name, digest in parts.items()}


def under_killpoint(job: Job, folder: Path, settings: Mapping[str, Any], place: Place) -> tuple[list[Recovery], Path]:
    """One run of this project: its recoveries, and its folder, with its twin. Raises Failed."""
    names = ("workload", "config", "seed", "ranks", "global_batch", "microbatches", "steps", "save_every", "keep")
    run = {name: getattr(job, name) for name in names} | {"max_attempts": len(job.kills) + 2, **settings}
    text = yaml.safe_dump({"run": run, "faults": [fault(job, attempt) for attempt in range(len(job.kills))]})
    outcome = run_experiment(parse_experiment(text, folder / "job.yaml"), folder / "run", place=place)
    if outcome.verdict["verdict"] != "valid":
        raise Failed(f"the run is {outcome.verdict['verdict']}: {outcome.failure or outcome.verdict['invariants']}")
    found = [recovery(each) for each in outcome.verdict["recoveries"]]
    require_planned(job, found)
    return found, outcome.folder


def last_parts(run: Path) -> Parts:
    """The digests of the parts of a run's newest checkpoint."""
    newest = max((run / "store" / "manifests").glob("*.json"), key=lambda path: parse_checkpoint_name(path.stem)[:2])
    manifest, _ = decode(newest.read_bytes(), newest.name)
    parts = dict(manifest.parts)
    for record in manifest.ranks:
        parts |= named_parts(record.rank, record.parts)
    return parts


def threads() -> int:
    """Torch threads of a rank, by this project's own rule."""
    return load_experiment(None).threads_per_rank


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Ray Train reads its settings from the driver's environment, and hands them on."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def plain_ray(interrupts: Interrupts) -> Iterator[None]:
    """Ray as anybody starts it. Its workers know of no fork server; this project's own are told of one."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    silence_worker_deaths()
    ray.init(address="local", num_cpus=CPUS, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    interrupts.install()  # Ray put a handler of its own in their place, which ends the process at once
    try:
        with ForkServer() as server, variables({FORKSERVER_ENV: str(server.path)}):
            yield
    finally:
        ray.shutdown()


def measure(job: Job, runs: int, folder: Path, place: Place, progress: Progress) -> dict[str, Any]:
    """All rows, run after run in turn, and the twins."""
    peers = [Row("Ray Train", DEFAULTS), Row("Ray Train, tuned", TUNED)]
    own = [Row("this project, warm standby", _text(WARM)), Row("this project, cold", _text(COLD))]
    task = progress.add_task("Ray Train's twin", total=4 * runs + 1)
    _, peers_twin = under_ray_train(replace(job, kills=()), folder / "twin", TUNED)
    own_twin: Parts = {}
    for number in range(runs):
        for row, settings in zip(peers, ({}, TUNED), strict=True):
            progress.update(task, advance=1, description=f"{row.name}, run {number + 1} of {runs}")
            found, parts = under_ray_train(job, folder / f"{number} {row.name}", settings)
            row.add(found, compared(parts, peers_twin))
        for row, settings in zip(own, (WARM, COLD), strict=True):
            progress.update(task, advance=1, description=f"{row.name}, run {number + 1} of {runs}")
            where = folder / f"{number} {row.name}"
            where.mkdir()
            found, run = under_killpoint(job, where, settings, place)
            own_twin = last_parts(run / "twin")
            row.add(found, compared(last_parts(run), own_twin))
    progress.update(task, advance=1, description="done")
    facts = {"ray": ray.__version__, "threads_per_rank": threads(), "processors": os.cpu_count(), "runs_a_row": runs}
    return summary([*peers, *own], {**asdict(job), **facts}, compared(peers_twin, own_twin))


def _text(settings: Mapping[str, Any]) -> dict[str, str]:
    return {name: json.dumps(value) for name, value in settings.items()}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", choices=sorted(BETWEEN), default="bytelm")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--kills-a-run", type=int, default=2)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--steps-between", type=int, help=f"updates between kills; {BETWEEN}")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    between = options.steps_between or BETWEEN[options.workload]
    job = job_of(options.workload, options.kills_a_run, options.save_every, between)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        interrupts = stack.enter_context(Interrupts())
        place = stack.enter_context(Place(interrupts))  # from here on, what is printed goes to standard error
        stack.enter_context(plain_ray(interrupts))
        progress = stack.enter_context(Progress(console=Console(stderr=True)))
        result = measure(job, options.runs, folder, place, progress)
    if options.json:
        print(json.dumps(result))
    else:
        print_results(render(result))
    return 0 if result["aim_met"] else 1


if __name__ == "__main__":
    sys.exit(main())
