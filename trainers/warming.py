"""What is slow the first time, done once on data that is thrown away: a step, an update, a stream of input."""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path

import torch

from storage.manifest import Fingerprints
from trainers import reducer
from trainers.dataset import open_dataset
from trainers.loop import to_device
from trainers.pipeline import Pipeline, configure_ray_data
from trainers.plan import Plan
from trainers.points import NoPoints
from trainers.source import Share, Span, read_span, to_microbatch
from trainers.spec import Survey, TrainingSpec, code_digest
from trainers.staging import Staging
from trainers.state import seed_everything
from trainers.update import autocast, require
from trainers.workload import build, code_files

_WINDOW_GROUPS = 4


def settle(spec: TrainingSpec) -> torch.device:
    """This process as the run wants it. Returns the device that it computes on."""
    torch.set_num_threads(spec.threads_per_rank)
    configure_ray_data()
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def load_libraries() -> None:
    """The imports that torch puts off until the first optimizer is made: most of a second."""
    importlib.import_module("torch._dynamo")


def survey(spec: TrainingSpec, device: torch.device) -> Survey:
    """Opens and digests the dataset. Raises WorkloadError, DatasetError, PrecisionUnavailable."""
    require(spec.precision, device)
    seed_everything(spec.seed, None)
    dataset = open_dataset(Path(build(spec.workload, spec.workload_config).dataset))
    plan = Plan(dataset.rows, dataset.group_rows, _WINDOW_GROUPS, spec.seed & ((1 << 64) - 1))
    files = code_files(spec.workload)
    prints = Fingerprints(dataset.fingerprint, plan.fingerprint, spec.config_digest, code_digest(files))
    return Survey(dataset, plan, prints, tuple(map(str, files)))


def warm(spec: TrainingSpec, device: torch.device) -> None:
    """Builds the workload and trains it for one microbatch, then reads a first block through Ray Data."""
    seen, share = survey(spec, device), Share(0, spec.ranks, spec.global_batch, spec.microbatches)
    workload = build(spec.workload, spec.workload_config)
    workload.model.to(device)
    table = read_span(seen.dataset, seen.plan, share, Span(0, 0, 1))
    batch = to_microbatch(table.slice(0, share.microbatch_rows), seen.dataset.columns)
    reducer.Reducer(workload.model, 1)
    with autocast(spec.precision, device):
        losses = workload.loss(workload.model, to_device(batch, device))
    losses.sum().backward()  # type: ignore[no-untyped-call]
    workload.optimizer.step()
    Staging(0, spec.ranks).prepare(workload)
    pipeline = Pipeline(seen.dataset, seen.plan, share, first_step=0, last_step=1, prefetch=1, attempt=-1,
                        points=NoPoints())
    pipeline.start()
    with contextlib.suppress(Exception):
        pipeline.next()
    pipeline.close()
