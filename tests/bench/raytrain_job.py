"""The job of `bench_raytrain.py`, as a user of Ray Train writes it: the training function, and its checkpoints.

Model, loss, optimizer and schedule are those of the built-in workload. Each rank reads the rows of the same Parquet
shards that the same plan gives it, in the training process itself: Ray Data's sharded iterators cannot be put back into
the middle of an epoch, and so nothing of an input pipeline has to start again after a kill. Gradients are averaged by
`DistributedDataParallel`. A checkpoint holds what Ray Train's guide asks for and what an exact continuation needs
besides: parameters, buffers, optimizer, scheduler, step, and each rank's generators. It is a safetensors file of each
rank with the rest as JSON, not `torch.save`, since nothing here loads a pickle.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import ray.train
import ray.train.torch
import safetensors
import safetensors.torch
import torch
from raytrain_marks import Marks, strikes
from raytrain_plan import Job

from trainers.dataset import column_array, open_dataset, read_samples
from trainers.plan import Plan
from trainers.state import (
    Progress,
    json_parts,
    live_digests,
    local_tensors,
    replicated_tensors,
    restore,
    seed_everything,
)
from trainers.workload import Batch, Workload, build

WINDOW_GROUPS = 4  # of the plan, as this project's trainer has it


class Rows:
    """A rank's microbatches by the plan: update `step` consumes positions [step · global batch, …) of it."""

    def __init__(self, job: Job, rank: int, folder: Path) -> None:
        self._job, self._rank, self._dataset = job, rank, open_dataset(folder)
        self._plan = Plan(self._dataset.rows, self._dataset.group_rows, WINDOW_GROUPS, job.seed)

    def step(self, step: int) -> list[Batch]:
        first = step * self._job.global_batch + self._rank * self._job.rows
        ids = self._plan.sample_ids(np.arange(first, first + self._job.rows, dtype=np.int64))
        table = read_samples(self._dataset, ids)
        rows = {name: torch.from_numpy(np.array(column_array(table[name]))) for name in self._dataset.columns}
        size = self._job.microbatch_rows
        return [{name: x[at : at + size] for name, x in rows.items()} for at in range(0, self._job.rows, size)]


def train(config: dict[str, Any]) -> None:
    """What Ray Train runs on every rank, in every attempt."""
    job, marks, folder = Job(**config["job"]), Marks(Path(config["marks"])), Path(config["marks"])
    rank, attempt = ray.train.get_context().get_world_rank(), strikes(folder)
    marks.note("up", rank=rank, attempt=attempt)
    torch.set_num_threads(config["threads"])
    seed_everything(job.seed, None)
    workload = build(job.workload, job.config)
    model = ray.train.torch.prepare_model(workload.model)
    seed_everything(job.seed, rank)
    checkpoint = ray.train.get_checkpoint()
    first = 0 if checkpoint is None else load(workload, checkpoint, rank)
    marks.note("restored", rank=rank, attempt=attempt, step=first)
    rows = Rows(job, rank, Path(workload.dataset))
    kill_step, kill_rank = job.kills[attempt] if attempt < len(job.kills) else (-1, -1)
    model.train()
    for step in range(first, job.steps):
        workload.optimizer.zero_grad()
        for number, batch in enumerate(rows.step(step)):
            whole = number + 1 == job.microbatches
            with nullcontext() if whole else model.no_sync():
                losses = workload.loss(model, batch)
                (losses.sum() / job.rows).backward()  # the mean over this rank's samples; ranks are averaged by DDP
            if (step, rank, number + 1) == (kill_step, kill_rank, job.kill_microbatch):
                marks.strike(attempt, rank=rank, step=step, microbatch=number + 1)
        workload.optimizer.step()
        if workload.scheduler is not None:
            workload.scheduler.step()
        marks.note("step", rank=rank, attempt=attempt, step=step + 1)
        if (step + 1) % job.save_every == 0 or step + 1 == job.steps:
            save(workload, step + 1, rank)
    marks.note("finished", rank=rank, parts=live_digests(workload, Progress()))


def save(workload: Workload, step: int, rank: int) -> None:
    """Reports one file of this rank; Ray Train merges those of all ranks into one checkpoint in its storage."""
    tensors = local_tensors(workload) | (replicated_tensors(workload) if rank == 0 else {})
    texts = json_parts(workload, Progress(step=step))
    with tempfile.TemporaryDirectory() as folder:
        safetensors.torch.save_file(tensors, os.path.join(folder, _file(rank)), {"state": json.dumps(texts)})
        ray.train.report({"step": step}, checkpoint=ray.train.Checkpoint.from_directory(folder))


def load(workload: Workload, checkpoint: ray.train.Checkpoint, rank: int) -> int:
    """Puts the state back, the generators last. Returns the updates done."""
    tensors: dict[str, torch.Tensor] = {}
    with checkpoint.as_directory() as folder:
        for file in dict.fromkeys((_file(0), _file(rank))):  # a rank's own buffers and generators replace rank 0's
            with safetensors.safe_open(os.path.join(folder, file), framework="pt") as opened:
                tensors |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
                texts = json.loads(opened.metadata()["state"])
    return restore(workload, tensors, texts).step


def _file(rank: int) -> str:
    return f"rank-{rank}.safetensors"


class Noted(ray.train.UserCallback):
    """Ray Train calls it in its controller when it has noticed that a worker failed."""

    def __init__(self, marks: str) -> None:
        self._marks = marks

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        folder = Path(self._marks)
        Marks(folder).note("detected", attempt=strikes(folder), ranks=sorted(worker_exceptions))
