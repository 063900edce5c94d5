"""Seconds and memory of an audit of a long run, for several lengths, beside the least that its bytes allow.

python tests/bench/bench_audit.py [--millions 10 30 100] [--batch 4096] [--save-every 100] [--rows 1000000]: one line
of JSON for each length, then the ratios. Each audit runs in a process of its own, on files in the page cache.
helper_peak_mib is of the process that computes sample ids ahead. floor_s is what it takes to read every file of the run
once, from the page cache into a buffer, in such a process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_FLOOR = """
import sys, time
from pathlib import Path
buffer, total, started = bytearray(1 << 20), 0, time.perf_counter()
for folder in sys.argv[1:]:
    for path in Path(folder).rglob("*"):
        if path.is_file():
            with open(path, "rb", buffering=0) as file:
                while number := file.readinto(buffer):
                    total += number
print(total, time.perf_counter() - started)
"""
_AUDIT = """
import json, resource, sys, time
from pathlib import Path
begun = time.perf_counter()
from chaos.audit import plan_ahead, read_run, verdict
took = {}
def timed(name, function):
    def call(*arguments):
        started = time.perf_counter()
        result = function(*arguments)
        took[name] = took.get(name, 0.0) + time.perf_counter() - started
        return result
    return call
took["imports"] = time.perf_counter() - begun
for name in ("read_history", "read_store", "read_dataset"):
    setattr(read_run, name, timed(name, getattr(read_run, name)))
verdict.CHECKS = tuple((n, name, timed(name, check)) for n, name, check in verdict.CHECKS)
for name in ("unseen", "recoveries", "faults_seen"):
    setattr(verdict, name, timed(name, getattr(verdict, name)))
verdict.vacuous.check = timed("no vacuous pass", verdict.vacuous.check)
def peak_mib(pid):
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024
helper, leave = [0.0], plan_ahead.PlanAhead.__exit__
def left(ahead, *error):
    if ahead.pid is not None:
        helper.append(peak_mib(ahead.pid))
    leave(ahead, *error)
plan_ahead.PlanAhead.__exit__ = left
evidence = read_run.read_evidence(Path(sys.argv[1]))
found = verdict.judge(evidence)
seconds = time.perf_counter() - begun
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
wrong = {i.id: i.finding.witness for i in found.invariants if i.finding.verdict not in ("valid", "not_judged")}
print(json.dumps({"seconds": seconds, "cpu_s": sum(u.ru_utime + u.ru_stime for u in used),
                  "peak_mib": peak_mib("self"), "helper_peak_mib": max(helper),
                  "verdict": found.verdict, "wrong": wrong, "took": took}))
"""


def child(program: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def measure(folder: Path, samples: int, options: argparse.Namespace) -> dict[str, Any]:
    from long_run import remove, write

    run = folder / f"run-{samples}"
    started = time.perf_counter()
    consumed = write(run, samples, options.batch, options.save_every, options.rows)
    written_s = time.perf_counter() - started
    places = [str(run), f"{run}-data"]
    child(_FLOOR, *places)  # into the page cache
    audits = [json.loads(child(_AUDIT, str(run))) for _ in range(options.rounds)]
    total, floor_s = child(_FLOOR, *places).split()
    best = min(audits, key=lambda audit: audit["seconds"])
    history = sum(path.stat().st_size for path in (run / "history").glob("*.jsonl"))
    if not options.keep:
        remove(run)
    shares = {name: round(took, 2) for name, took in sorted(best["took"].items(), key=lambda n: -n[1]) if took > 0.005}
    return {
        "bench": "audit", "samples": consumed, "batch": options.batch, "save_every": options.save_every,
        "dataset_rows": options.rows, "verdict": best["verdict"], "seconds": round(best["seconds"], 2),
        "cpu_s": round(best["cpu_s"], 2), "peak_mib": round(best["peak_mib"]),
        "helper_peak_mib": round(best["helper_peak_mib"]), "bytes": int(total),
        "history_bytes": history, "floor_s": round(float(floor_s), 2),
        "seconds_over_floor": round(best["seconds"] / float(floor_s), 1), "shares_s": shares,
        "written_s": round(written_s, 1), "wrong": best["wrong"],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--millions", type=int, nargs="+", default=[10, 30, 100])
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    found = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
        for millions in options.millions:
            found.append(measure(options.folder or Path(name), millions * 10**6, options))
            print(json.dumps(found[-1]), flush=True)
    first, last = found[0], found[-1]
    print(json.dumps({
        "bench": "audit_growth", "samples": round(last["samples"] / first["samples"], 2),
        "seconds": round(last["seconds"] / first["seconds"], 2),
        "peak_mib": round(last["peak_mib"] / first["peak_mib"], 2),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
