"""Seconds from a kill to the first new optimizer step, default experiment's workload, warm standby, many kills.

python tests/bench/bench_recovery.py [--kills 20]: one run that is killed again and again, each time in
mid-accumulation and late enough for a new standby to be warm; one line of JSON with the median and the parts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import yaml

from chaos.experiment import load_experiment, parse_experiment
from chaos.run import run_experiment


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps-between", type=int, default=50)
    options = parser.parse_args()
    settings = yaml.safe_load(load_experiment(None).text)["run"]
    between = options.steps_between
    steps = (options.kills + 1) * between
    settings |= {"steps": steps, "max_attempts": options.kills + 2}
    settings["config"] |= {"total_steps": steps}
    faults = [
        {"kind": "sigkill", "at": {"attempt": k, "role": "rank", "rank": k % 2, "point": "microbatch.backward",
                                   "hit": between * settings["microbatches"]}}
        for k in range(options.kills)
    ]
    text = yaml.safe_dump({"run": settings, "faults": faults})
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_experiment(parse_experiment(text, Path(folder) / "bench.yaml"), Path(folder) / "run")
    recoveries = outcome.verdict["recoveries"]
    median = {
        name: round(statistics.median(r[name] for r in recoveries), 3)
        for name in ("first_step_s", "detect_s", "reacquire_s", "load_s", "redo_s")
    }
    worst = max(r["first_step_s"] for r in recoveries)
    print(json.dumps({"bench": "recovery", "verdict": outcome.verdict["verdict"], "kills": len(recoveries), **median,
                      "worst_first_step_s": round(worst, 3)}))


if __name__ == "__main__":
    main()
