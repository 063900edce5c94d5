"""What a step's record costs, in the steps of a real run of the default experiment: fingerprint, ids, gradient norm.

python tests/bench/bench_fingerprint.py [--steps 64] [--rounds 3]: one line of JSON a run, each the medians over all
steps of all ranks but the first few, and the record's share of a step.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import yaml

from chaos.experiment import default_text, parse_experiment
from chaos.run import run_experiment
from storage.history import read_history

_WARM_UP_STEPS = 8


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measured(Path(folder), given.steps)), flush=True)


def measured(folder: Path, steps: int) -> dict[str, object]:
    """One run without faults. A step lasts from its beginning to the end of its record, waiting for input left out."""
    settings = yaml.safe_load(default_text())
    settings["run"] |= {"steps": steps, "save_every": steps, "twin": False}
    settings["faults"] = []
    outcome = run_experiment(parse_experiment(yaml.safe_dump(settings)), folder / "run")
    assert outcome.verdict["verdict"] == "valid", outcome.failure
    lines = [line for path in (outcome.folder / "history").glob("worker-*") for line in read_history(path).lines]
    bodies = [line.body for line in lines if line.event == "step" and line.body["step"] > _WARM_UP_STEPS]
    fingerprint_s = statistics.median(body["fingerprint_s"] for body in bodies)
    step_s = statistics.median(body["train_s"] + body["fingerprint_s"] for body in bodies)
    return {
        "bench": "fingerprint", "steps_observed": len(bodies), "step_s": round(step_s, 5),
        "fingerprint_s": round(fingerprint_s, 6), "share_of_step": round(fingerprint_s / step_s, 4),
    }  # fmt: skip


if __name__ == "__main__":
    main()
