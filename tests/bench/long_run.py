"""A correct run of many samples, written as quickly as that goes: the auditor's simulated run, vectorised.

The sample ids come from the trainer's plan, contents from the trainer's digests; a rank is killed half-way, between two
saves. Shards are tiny; ledger, log, manifests, histories and dataset have the size that they would really have.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1] / "audit"))

import audit_files as files
from simulated_run import Settings, Simulation, fault

from storage.digests import sample_content_digests
from trainers.plan import Plan

GROUP_ROWS, WINDOW_GROUPS, FILES = 16_384, 4, 4
_BLOCK = 1 << 21  # positions whose samples are looked up at once
_LINES = 512  # of a history that are written at once
_KILL = fault(0, 0, "rank", 1, "step.end", hit=5)


class Buffered(files.Recorder):
    """A history that is written many lines at a time."""

    def __init__(self, *arguments: Any) -> None:
        self.lines: list[bytes] = []
        super().__init__(*arguments)

    def record(self, event: str, attempt: int | None, t_ns: int, **fields: Any) -> None:
        body = {"event": event, "attempt": attempt, "t_ns": t_ns, "clock": self.n + 2, **fields}
        self.n += 1
        self.chain, line = files._chained(self.chain, self.n, body)
        self.lines.append(line)
        if len(self.lines) >= _LINES or event == "closed":
            self.flush()

    def flush(self) -> None:
        with open(self.path, "ab") as file:
            file.write(b"".join(self.lines))
        self.lines = []


class LongRun(Simulation):
    """Like `Simulation`, with `rows` in a dataset of its own and whole steps at once."""

    def _data(self) -> None:
        self.recorders: list[Buffered] = []
        rows = self.set.rows
        rng = np.random.default_rng(3)
        columns = {"x": rng.random((rows, 4), np.float32), "y": rng.integers(0, 9, rows)}
        self.dataset = self.folder.parent / f"{self.folder.name}-data"
        self.dataset.mkdir(parents=True)
        x = pa.FixedSizeListArray.from_arrays(pa.array(columns["x"].reshape(-1)), 4)
        table = pa.table({"x": x, "y": pa.array(columns["y"])})
        per_file = -(-rows // FILES // GROUP_ROWS) * GROUP_ROWS
        identity = []
        for number, start in enumerate(range(0, rows, per_file)):
            path, piece = self.dataset / f"part-{number:03d}.parquet", table.slice(start, per_file)
            pq.write_table(piece, path, row_group_size=GROUP_ROWS)
            data = path.read_bytes()
            identity.append([path.name, len(data), piece.num_rows, files.bulk(data)])
        self.fingerprint = "sha256:" + files.hashlib.sha256(files.canonical(identity)).hexdigest()
        self.digests = sample_content_digests(columns)
        self.order = Plan(rows, self.set.group_rows, self.set.window_groups, self.set.seed)
        self.block = (0, np.zeros(0, np.int64))
        share = self.set.global_batch // self.set.ranks
        self.microbatches = np.arange(share) * self.set.microbatches // share

    def _recorder(self, role: str) -> files.Recorder:
        self.pid += 1
        recorder = Buffered(
            self.folder / "history", role, self.pid, self.pid * 10, "run-1", self.tick()
        )
        self.recorders.append(recorder)
        return recorder

    def say(self, recorder: files.Recorder, event: str, attempt: int | None = None, **fields: Any) -> None:
        if event == "step":  # what a trainer records besides
            fields |= {"fingerprint_s": 0.000412, "prepare_s": 1.234567, "queue_depth": 8, "samples_per_s": 5120.5,
                       "step_is": "optimizer update"}  # fmt: skip
        super().say(recorder, event, attempt, **fields)

    def ids(self, first: int, stop: int) -> Any:
        """Sample ids at positions first … stop − 1."""
        begin, known = self.block
        if not begin <= first <= stop <= begin + len(known):
            begin, known = self.block = first, self.order.sample_ids(np.arange(first, first + _BLOCK))
        return known[first - begin : stop - begin]

    def _accumulate(self, last: int, publish: bool) -> dict[int, Any]:
        share, step = self.set.global_batch // self.set.ranks, self.step
        found = {}
        for rank in range(self.set.ranks):
            first = step * self.set.global_batch + rank * share
            ids = self.ids(first, first + share)
            self.rows[rank].append({
                "position": np.arange(first, first + share), "sample_id": ids, "content": self.digests[ids],
                "step": np.full(share, step), "microbatch": self.microbatches,
            })  # fmt: skip
            found[rank] = ids
        return found

    def best_step(self, step: int) -> int | None:
        return step or None

    def prints(self, step: int, rank: int, microbatch: int = 0) -> dict[str, str]:
        names = ("buffers", "model", "optimizer", "progress", "rng.numpy", "rng.python", "rng.torch", "scaler")
        seed = (step * 1000003 + rank) * 0x9E3779B97F4A7C15
        prints = {name: f"{(seed * (n + 3)) % (1 << 64):016x}" for n, name in enumerate(names)}
        return {**prints, "scheduler": f"{step:016x}"}


def write(folder: Path, samples: int, batch: int, save_every: int, rows: int) -> int:
    """Writes the run and says how many samples it has consumed: the least whole number of saves that suffices."""
    steps = -(-samples // batch // save_every) * save_every
    settings = Settings(
        global_batch=batch, microbatches=4, steps=steps, save_every=save_every, rows=rows, group_rows=GROUP_ROWS,
        window_groups=WINDOW_GROUPS, faults=[_KILL],
    )  # fmt: skip
    run = LongRun(folder, settings)
    run.start()
    run.train(steps // 2 + save_every // 2)
    run.kill(_KILL)
    run.recover()
    run.train(steps)
    run.finish()
    for recorder in run.recorders:
        recorder.flush()
    return steps * batch


def remove(folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.rmtree(folder.parent / f"{folder.name}-data")
