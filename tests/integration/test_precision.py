"""Mixed precision, schedules, overflows and the best model across a kill: each step as if nothing had happened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from run_kit import events, explain, invariant, kill, last_parts

from chaos.run import Outcome
from chaos.runfolder import EXPERIMENT
from trainers.events import Event, NonFiniteFound

# The output in half precision: on the way back the scaled gradient passes through it, and 65504 is its limit.
HALF = """
from dataclasses import replace
import torch
from trainers.workloads import tiny

def loss(model, batch):
    return (model(batch["x"]).squeeze(1).half().float() - batch["y"]) ** 2

def build(config):
    return replace(tiny.build(config), loss=loss, scaler=torch.amp.GradScaler("cpu", 2.0**20, growth_interval=2))
"""
Run = Callable[..., Outcome]
FIELDS = ("step_is", "loss", "lr", "gradient_norm", "state", "samples_seen", "ids", "skipped")


def record(folder: Path) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """(rank, step) → what each attempt that did the step recorded of it."""
    found: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for event in events(folder, "worker", "step"):
        found.setdefault((event["rank"], event["step"]), []).append({name: event[name] for name in FIELDS})
    return found


def same_as_uninterrupted(run: Run, fault: dict[str, Any], **settings: Any) -> Outcome:
    """Runs with the fault and its twin without, and compares every step of every attempt."""
    killed = run(fault, twin=True, **settings)
    assert killed.verdict["verdict"] == "valid", explain(killed)
    assert invariant(killed, 5) == "valid"
    assert len(killed.verdict["recoveries"]) == 1
    expected, seen = record(killed.folder / "twin"), record(killed.folder)
    assert seen.keys() == expected.keys()
    assert any(len(lives) == 2 for lives in seen.values())  # something was redone
    for key, lives in seen.items():
        assert all(life == expected[key][0] for life in lives), key
    assert last_parts(killed.folder) == last_parts(killed.folder / "twin")
    return killed


def test_bf16_momentum_steplr_dropout_and_the_best_model(run: Run) -> None:
    recipe = {"optimizer": "sgd", "momentum": 0.9, "lr": 0.02, "schedule": "step", "step_size": 4, "gamma": 0.5}
    killed = same_as_uninterrupted(
        run, kill("microbatch.backward", 23, rank=1), precision="bf16", keep_best=True, config=recipe, steps=16
    )  # fmt: skip
    steps = events(killed.folder, "worker", "step")
    assert len({tuple(step["lr"]) for step in steps}) == 4
    best = {step["state"]["best"] for step in steps}
    last = {step["state"]["model"] for step in steps}
    assert 1 < len(best) < len(last)  # it changes, and it does not follow the last one
    assert {"best", "0/best.buffers", "1/best.buffers"} < last_parts(killed.folder).keys()
    assert invariant(killed, 4) == "valid"
    bits = yaml.safe_load((killed.folder / EXPERIMENT).read_text())["run"]["precision"]
    assert bits == events(killed.folder, "supervisor", "run")[0]["precision"] == "bf16"


def test_a_gradient_scaler_that_overflowed_before_the_kill(run: Run, tmp_path: Path) -> None:
    (tmp_path / "workload.py").write_text(HALF)
    killed = same_as_uninterrupted(
        run, kill("microbatch.backward", 29, rank=0), workload="workload.py:build", steps=18, standbys=0
    )  # fmt: skip
    restored = killed.verdict["recoveries"][0]["restored_step"]
    skipped = sorted({step["step"] for step in events(killed.folder, "worker", "step") if step["skipped"]})
    assert skipped[0] == 1  # the very first update, before which a schedule would not advance by torch's advice
    assert any(step <= restored for step in skipped)
    assert any(step > restored for step in skipped)  # where a lost scale or tracker would show
    findings = events(killed.folder, "worker", "non_finite")
    assert {finding["step"] for finding in findings} == set(skipped)
    assert {(finding["what"], finding["action"]) for finding in findings} == {("scaled_gradient", "skip")}
    assert len({finding["scale"] for finding in findings}) > 1
    assert not [text for text in killed.verdict["unseen"] if "scaler" in text]


def test_the_policy_to_stop_ends_the_run_at_once_and_keeps_what_was_published(run: Run) -> None:
    told: list[Event] = []
    recipe = {"optimizer": "sgd", "lr": 1e4, "schedule": "constant"}
    outcome = run(config=recipe, steps=30, save_every=1, standbys=0, notify=told.append)
    assert outcome.exit_status == 2
    assert outcome.failure is not None
    found = events(outcome.folder, "worker", "non_finite")
    assert [(event["rank"], event["action"]) for event in sorted(found, key=lambda e: e["rank"])] == [
        (0, "stop"), (1, "stop"),
    ]  # fmt: skip
    step = found[0]["step"]
    assert {event["step"] for event in found} == {step}
    assert max(event["step"] for event in events(outcome.folder, "worker", "step")) == step - 1
    assert [event.step for event in told if isinstance(event, NonFiniteFound)] == [step]
    assert f"step {step}: the " in outcome.failure
    assert "by the run's policy (non_finite: stop)" in outcome.failure
    published = [event["step"] for event in events(outcome.folder, "committer", "published")]
    assert published == list(range(1, step))  # the save in flight was waited for
