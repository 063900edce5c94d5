"""Defects of the state that a worker puts back (bugs 1, 2, 3, 21, 24)."""

from __future__ import annotations

import copy
import random
from dataclasses import replace

import numpy as np
import torch
from scenes import SCALES, struck

from chaos.gallery.bugs import TINY, WORKER, Bug, Case, Replacement


def after_restore(change):
    """`change(run, here)` comes after the restore, whose own checks have passed, and before the first step."""

    def make(train, here):
        def planted(run):
            if run.attempt > 0 and not here.twin:
                change(run, here)
            train(run)

        return planted

    return (Replacement("trainers.rank.train", make),)


def drop_optimizer_state(run, here):
    run.workload.optimizer.state.clear()


def restart_schedule(run, here):
    if run.workload.scheduler is not None:
        run.workload.scheduler.last_epoch = 0
        for group in run.workload.optimizer.param_groups:
            group["lr"] = group["initial_lr"]


def step_schedule_again(run, here):
    if run.workload.scheduler is not None:
        run.workload.scheduler.step()


def zero_partial_gradients(run, here):
    run.reducer.zero()


def remember_new_scaler(build, here):
    def planted(*arguments):
        workload = build(*arguments)
        here.notes["scaler"] = workload.scaler and copy.deepcopy(workload.scaler.state_dict())
        return workload

    return planted


def new_scaler(run, here):
    if run.workload.scaler is not None:
        run.workload.scaler.load_state_dict(here.notes["scaler"])


def with_noise(build, here):
    """A loss that draws from all three generators."""

    def planted(config):
        workload = build(config)

        def loss(model, batch):
            return workload.loss(model, batch) * (1 + 0.1 * random.random()) + 0.1 * np.random.random()

        return replace(workload, loss=loss)

    return planted


NOISE = (Replacement("trainers.workloads.tiny.build", with_noise, WORKER),)
FIRST = r"attempt 1, step 4, rank 0: not the twin's "
SEEDS = {  # each generator as the run itself seeds it when it starts
    "python": (random.seed, r"rng\.python", r"Python's .*generator never advanced"),
    "numpy": (np.random.seed, r"rng\.numpy", r"NumPy's .*generator never advanced"),
    "torch": (torch.manual_seed, r"rng\.torch", r"torch's generator never advanced"),
}

BUGS = (
    Bug(
        1, "weights are restored, the optimizer's state is dropped", after_restore(drop_optimizer_state),
        Case((struck(),)), Case((struck(),), {"config": {"optimizer": "sgd", "momentum": 0.0}}),
        {5: FIRST + ".*optimizer"}, "the optimizer had no state", "KempnerForge#115",
    ),
    Bug(
        2, "the learning-rate schedule starts again", after_restore(restart_schedule),
        Case((struck(),), {"config": {"step_size": 2}}), Case((struck(),), {"config": {"schedule": "constant"}}),
        {5: FIRST + r".*learning rate \(0\.01, twin 0\.009\)"}, "the learning rate was constant",
        "pytorch-lightning#1772, #11188", "restarted", frozenset({4}),
    ),
    Bug(
        2, "the learning-rate schedule is stepped once too often", after_restore(step_schedule_again),
        Case((struck(),), {"config": {"step_size": 2}}), Case((struck(),), {"config": {"schedule": "constant"}}),
        {5: FIRST + r".*learning rate \(0\.0081, twin 0\.009\)"}, "the learning rate was constant",
        "pytorch-lightning#4655", "ahead", frozenset({4}),
    ),
    *(
        Bug(
            3, f"{name}'s generator is seeded anew instead of restored",
            after_restore(lambda run, here, seed=seed: seed(TINY["seed"] * 1_000_003 + run.share.rank + 1)),
            Case((struck(),), also=NOISE), Case((struck(),), {"config": {"dropout": 0.0}}),
            {5: FIRST + f".*{part}"}, unseen, "reference figures B", name,
        )
        for name, (seed, part, unseen) in SEEDS.items()
    ),
    Bug(
        21, "a checkpoint inside a step comes back without its partial gradients",
        after_restore(zero_partial_gradients),
        Case(
            (struck(step=3, save=2, microbatches=4),),
            {"microbatches": 4, "save_every_microbatches": 3, "save_every": 100, "steps": 6},
        ),
        Case((struck(),)), {5: "attempt 1, step 2, rank 0: not the twin's .*gradient norm"},
        "no restart began inside a step", "reference figures E",
    ),
    Bug(
        24, "the gradient scaler starts anew",
        (*after_restore(new_scaler), Replacement("trainers.rank.build", remember_new_scaler)),
        Case((struck(),), {"config": {"scaler": True, **SCALES}}), Case((struck(),)),
        {5: FIRST + ".*scaler"}, "there was no gradient scaler", "transformers#34053",
        may=frozenset({4}),
    ),
)  # fmt: skip
