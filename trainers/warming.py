"""What is slow the first time, done once on data that is thrown away: a step, an update, a stream of input."""

from __future__ import annotations

import contextlib

import torch

from trainers import reducer
from trainers.loop import to_device
from trainers.pipeline import Pipeline
from trainers.points import NoPoints
from trainers.source import Share, Span, read_span, to_microbatch
from trainers.spec import Survey, TrainingSpec
from trainers.staging import Staging
from trainers.update import autocast
from trainers.workload import build


def warm(spec: TrainingSpec, survey: Survey, device: torch.device) -> None:
    """Builds the workload and trains it for one microbatch, then reads a first block through Ray Data."""
    share = Share(0, spec.ranks, spec.global_batch, spec.microbatches)
    workload = build(spec.workload, spec.workload_config)
    workload.model.to(device)
    table = read_span(survey.dataset, survey.plan, share, Span(0, 0, 1))
    batch = to_microbatch(table.slice(0, share.microbatch_rows), survey.dataset.columns)
    reducer.Reducer(workload.model, 1)
    with autocast(spec.precision, device):
        losses = workload.loss(workload.model, to_device(batch, device))
    losses.sum().backward()  # type: ignore[no-untyped-call]
    workload.optimizer.step()
    Staging(0, spec.ranks).prepare(workload)
    pipeline = Pipeline(survey.dataset, survey.plan, share, first_step=0, last_step=1, prefetch=1, attempt=-1,
                        points=NoPoints())
    pipeline.start()
    with contextlib.suppress(Exception):
        pipeline.next()
    pipeline.close()
