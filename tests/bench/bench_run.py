"""Wall seconds of the default `killpoint run` and of `killpoint audit` on it, each in a process of its own.

python tests/bench/bench_run.py [--rounds 3]: one line of JSON with medians and the verdicts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KILLPOINT = str(Path(sys.executable).parent / "killpoint")


def timed(*arguments: str) -> tuple[float, str]:
    started = time.perf_counter()
    done = subprocess.run([KILLPOINT, *arguments, "--json"], capture_output=True, text=True, check=False)
    return time.perf_counter() - started, json.loads(done.stdout)["verdict"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    runs, audits, verdicts = [], [], set()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            run = f"{folder}/{number}"
            seconds, verdict = timed("run", "--output", run)
            runs.append(seconds)
            verdicts.add(verdict)
            for _ in range(3):
                seconds, verdict = timed("audit", run)
                audits.append(seconds)
                verdicts.add(verdict)
    print(json.dumps({"bench": "run", "run_s": round(statistics.median(runs), 2),
                      "audit_s": round(statistics.median(audits), 3), "verdicts": sorted(verdicts)}))


if __name__ == "__main__":
    main()
