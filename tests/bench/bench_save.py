"""Stall and duration of an asynchronous save of 128 MiB, beside a plain copy and a raw write + fsync, in one run.

python tests/bench/bench_save.py [--mib 128] [--rounds 15]: one line of JSON, medians and ratios.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from storage.commit import commit_checkpoint
from storage.history import History
from storage.ledger import LedgerRows
from storage.log import CommitLog
from storage.manifest import FileRecord, Fingerprints, Manifest, RankRecord, checkpoint_name
from storage.objects import LocalObjects, no_point
from storage.process import current_process
from storage.retrying import Retrying
from trainers.parts import REPLICATED, part_digests
from trainers.reports import SaveReport
from trainers.saver import Saver, SaverIdentity
from trainers.staging import Staging
from trainers.state import Progress
from trainers.workload import Workload


def make_workload(mib: int) -> Workload:
    """A model whose parameters and momenta together have about `mib` MiB."""
    side = int((mib * (1 << 20) / 4 / 3 / 8) ** 0.5)
    model = torch.nn.Sequential(*(torch.nn.Linear(side, side, bias=False) for _ in range(8)))
    optimizer = torch.optim.Adam(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return Workload(model, optimizer, lambda m, b: b["x"], Path())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    workload = make_workload(options.mib)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
        print(json.dumps(measure(Path(name), workload, options.rounds)))


def measure(folder: Path, workload: Workload, rounds: int) -> dict[str, Any]:
    objects, history = LocalObjects(folder / "store"), History.open(folder / "history", "worker", "bench")
    log = CommitLog(objects, "bench")
    fence = log.fence("sha256:" + "0" * 64, current_process())
    log.choose(fence.attempt, None, ())
    parent: str | None = None
    published = threading.Event()

    def report(message: SaveReport) -> None:
        nonlocal parent
        parent = commit_checkpoint(objects, log, manifest_of(message, parent)).digest
        published.set()

    staging = Staging(0, 1)
    staging.prepare(workload)
    identity, store = SaverIdentity("bench", fence.attempt, 0, 1), Retrying(objects, 0.0)
    saver = Saver(identity, store, staging, history, report, no_point)
    tensors = [*workload.model.parameters(), *(t for s in workload.optimizer.state.values() for t in s.values())]
    buffers = [torch.zeros_like(t) for t in tensors]
    times: dict[str, list[float]] = {"copy": [], "stall": [], "raw_write_fsync": [], "save": []}
    progress = Progress()
    for _ in range(rounds):
        progress.advance(1.0, 1, skipped=False)
        times["copy"].append(timed(lambda: [b.copy_(t.detach()) for b, t in zip(buffers, tensors, strict=True)]))
        payload = memoryview(staging.copy(workload, progress).data)
        times["raw_write_fsync"].append(timed(functools.partial(raw_write, folder / "raw", payload)))
        published.clear()
        started = time.perf_counter()
        saver.save(workload, progress, rows(progress.step), progress.step - 1)
        times["stall"].append(time.perf_counter() - started)
        published.wait()
        times["save"].append(time.perf_counter() - started)
        saver.wait()
    median = {name: statistics.median(values) for name, values in times.items()}
    return {
        "bench": "save", "bytes": len(payload), "rounds": rounds,
        **{f"{name}_s": round(value, 5) for name, value in median.items()},
        "stall_over_copy": round(median["stall"] / median["copy"], 2),
        "save_over_raw": round(median["save"] / median["raw_write_fsync"], 2),
    }


def timed(action: Any) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def raw_write(path: Path, payload: memoryview) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    written = 0
    while written < len(payload):
        written += os.write(descriptor, payload[written:])
    os.fsync(descriptor)
    os.close(descriptor)
    path.unlink()


def rows(step: int) -> LedgerRows:
    one = np.array([step - 1], dtype=np.int64)
    return LedgerRows(one, one, one.astype(np.uint64), one, np.zeros(1, dtype=np.int32))


def manifest_of(message: SaveReport, parent: str | None) -> Manifest:
    files = tuple(FileRecord(f.path, f.kind, 0, f.bytes, f.digest) for f in message.files)
    parts = part_digests(REPLICATED, message.replicated, message.texts)
    prints = Fingerprints(*(f"sha256:{digit * 64}" for digit in "1234"))
    return Manifest(
        run="bench", name=checkpoint_name(message.step, message.attempt), attempt=message.attempt, step=message.step,
        world=1, cursor=message.step, parent=parent, fingerprints=prints, files=files, tensors=message.replicated,
        parts=parts, ranks=(RankRecord(0, message.parts, message.local, message.head),),
    )


if __name__ == "__main__":
    main()
