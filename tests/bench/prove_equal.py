"""Recovered equals uninterrupted, where a test suite has no time to look: a matrix of settings, and random times.

python tests/bench/prove_equal.py [--only WORD] [--output DIR]: for each case a run of `bytelm` with dropout, killed,
beside its twin. One line of JSON a case: the verdict, invariant 5, the kills, and what `killpoint diff` found between
the two. Ends with status 1 unless every case is valid, every planned kill has its receipt, and nothing differs.

Matrix: SGD with momentum and AdamW, 2 and 3 ranks, fp32 and bf16. Three kills each: two in one epoch, at a backward
pass and before an optimizer's step, and one exactly at an epoch's end. Random: ten seeds of the default experiment,
each killed at a time that its seed draws.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from chaos.diff.command import diff
from chaos.experiment import load_experiment, parse_experiment
from chaos.interrupts import Interrupts
from chaos.life import Place
from chaos.run import run_experiment

_SEEDS = 10
_EPOCH_STEPS, _STEPS, _SAVE_EVERY = 8, 26, 4


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and experiment."""
    for optimizer, ranks, precision in itertools.product(("sgd", "adamw"), (2, 3), ("fp32", "bf16")):
        yield f"{optimizer}-{ranks}-{precision}", matrix_case(optimizer, ranks, precision)
    for seed in range(_SEEDS):
        yield f"random-{seed}", random_case(seed)


def matrix_case(optimizer: str, ranks: int, precision: str) -> dict[str, Any]:
    """Each kill but the last waits until the last save before it is published, so what is restored is known."""
    config = {"optimizer": optimizer, "lr": 0.05 if optimizer == "sgd" else 0.001, "dropout": 0.1, "warmup_steps": 6,
              "samples": 12 * _EPOCH_STEPS, "total_steps": _STEPS}  # fmt: skip
    run = {"workload": "bytelm", "config": config, "seed": 11, "ranks": ranks, "global_batch": 12, "microbatches": 2,
           "steps": _STEPS, "save_every": _SAVE_EVERY, "precision": precision}  # fmt: skip
    faults = [
        killed("microbatch.backward", 19, 0, rank=ranks - 1, published=2),  # in step 10, with step 8 published
        killed("optimizer.before", 6, 1, rank=0, published=1),  # step 14, from step 8, with step 12 published
        killed("step.end", 4, 2, rank=ranks - 1, published=None),  # step 16, from step 12: the second epoch's end
    ]
    return {"run": run, "faults": faults}


def killed(point: str, hit: int, attempt: int, *, rank: int, published: int | None) -> dict[str, Any]:
    """published: of this attempt's saves, by the rank's own count."""
    gate = {"role": "rank", "rank": rank, "point": "save.done", "hit": published}
    at = {"attempt": attempt, "role": "rank", "rank": rank, "point": point, "hit": hit}
    return {"kind": "sigkill", "at": at, **({"gate": gate} if published else {})}


def random_case(seed: int) -> dict[str, Any]:
    default = yaml.safe_load(load_experiment(None).text)
    faults = [{"kind": "sigkill", "at": {"attempt": 0, "role": "rank", "rank": seed % 2, "random_s": [0.2, 3.5]}}]
    return {"run": {**default["run"], "seed": seed}, "faults": faults}


def prove(name: str, experiment: dict[str, Any], folder: Path, place: Place) -> dict[str, Any]:
    started = time.monotonic()
    parsed = parse_experiment(yaml.safe_dump(experiment), folder / f"{name}.yaml")
    outcome = run_experiment(parsed, folder / name, place=place)
    invariants = {each["id"]: each["verdict"] for each in outcome.verdict["invariants"]}
    found = diff(str(outcome.folder / "twin"), str(outcome.folder))
    seen = outcome.verdict["faults"]
    proven = outcome.verdict["verdict"] == "valid" and invariants[5] == "valid" and found.exit_status == 0
    return {
        "case": name, "proven": proven and all(each["receipt"] and each["observed"] for each in seen),
        "verdict": outcome.verdict["verdict"], "invariant_5": invariants[5], "failure": outcome.failure,
        "kills": len(seen), "restored": [each["restored_step"] for each in outcome.verdict["recoveries"]],
        "diff": found.report.get("compared"), "took_s": round(time.monotonic() - started, 1),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    proven, out = [], os.fdopen(os.dup(1), "w")  # a place sends what is printed to standard error
    with tempfile.TemporaryDirectory() as temporary, Interrupts() as interrupts, Place(interrupts) as place:
        place.enter(cpus=8, fork_workers=True)
        for name, experiment in cases():
            if options.only in name:
                result = prove(name, experiment, options.output or Path(temporary), place)
                print(json.dumps(result), file=out, flush=True)
                proven.append(result["proven"])
    print(f"{sum(proven)} of {len(proven)} cases proven", file=sys.stderr)
    return 0 if proven and all(proven) else 1


if __name__ == "__main__":
    sys.exit(main())
