"""A run of any length on disk, in the real formats and within seconds: `simulated_run`, but by the thousand.

Lines are collected and written at the end, rows are made for a whole save interval at once, and the state is the real
one of the simulation only where a checkpoint is: what lies between is told apart by its step alone.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from pathlib import Path
from typing import Any

import audit_files as files
import numpy as np
from simulated_run import Settings, Simulation, fault

from chaos.audit.findings import Judgement
from chaos.audit.plan import Plan
from chaos.audit.read_run import read_evidence
from chaos.audit.recoveries import recoveries
from chaos.audit.verdict import Verdict
from chaos.page.measured import read_measured
from chaos.page.pages import RunPage
from chaos.page.run_page import run_page

_ENCODE = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_PARTS = ("model", "optimizer", "buffers", "rng.torch", "scheduler", "scaler", "progress", "rng.python", "rng.numpy")


class Collected(files.Recorder):
    """A history file whose lines are written by `flush`."""

    def record(self, event: str, attempt: int | None, t_ns: int, **fields: Any) -> None:
        self.lines: list[bytes] = getattr(self, "lines", [])
        self.n += 1
        text = _ENCODE({"event": event, "attempt": attempt, "t_ns": t_ns, "clock": self.n + 1, **fields}).encode()
        self.chain = hashlib.sha256(self.chain.encode() + text).hexdigest()
        self.lines.append(b'{"body":%b,"chain":"%b","n":%d}\n' % (text, self.chain.encode(), self.n))

    def flush(self) -> None:
        self.path.write_bytes(b"".join(self.lines))


class LargeRun(Simulation):
    """Killed after every `steps / kills` steps, a few steps behind a checkpoint."""

    def __init__(self, folder: Path, *, steps: int, kills: int, save_every: int) -> None:
        planned = [fault(i, i, "rank", i % 2, "step.end", hit=1) for i in range(kills)]
        self.recorders: list[Collected] = []
        self.random = np.random.default_rng(5)
        super().__init__(folder, Settings(steps=steps, save_every=save_every, rows=5000, group_rows=64, faults=planned,
                                          optimizer="sgd", keep=3))  # fmt: skip
        self.start()
        for number, each in enumerate(planned):
            self.train(number * steps // kills + 5)
            self.kill(each)
            self.recover()
        self.train(steps)
        self.finish()
        for recorder in self.recorders:
            recorder.flush()

    def _recorder(self, role: str) -> Collected:
        self.pid += 1
        made = Collected(self.folder / "history", role, self.pid, self.pid * 10, "run-1", self.tick())
        self.recorders.append(made)
        return made

    def planned(self, position: int) -> int:
        return int(self.order[position])

    @cached_property
    def order(self) -> Any:
        """int64[positions] of sample ids."""
        s = self.set
        plan = Plan(s.rows, s.group_rows, s.window_groups, s.seed)
        return plan.sample_ids(np.arange((s.steps + 1) * s.global_batch, dtype=np.int64))

    def best_step(self, step: int) -> int | None:
        return step or None  # the loss falls all the way

    def prints(self, step: int, rank: int, microbatch: int = 0) -> dict[str, str]:
        if step % self.set.save_every and step != self.set.steps:
            return dict.fromkeys(_PARTS, f"{step:016x}")
        return super().prints(step, rank, microbatch)

    def train(self, upto: int, publish: bool = True, microbatches: int = 0) -> None:
        s, each = self.set, self.set.global_batch // self.set.ranks
        first, histories = self.step, [self.of("rank", rank).history for rank in range(self.set.ranks)]
        while self.step < upto:
            took_ms = float(self.random.uniform(40, 90))
            self.tick(took_ms)
            for rank, history in enumerate(histories):
                begin = self.step * s.global_batch + rank * each
                wait_s = round(float(self.random.exponential(0.002)), 6)
                history.record(
                    "step", self.attempt, self.t_ns + rank * 300_000, rank=rank, step=self.step + 1,
                    loss=self.loss(self.step + 1).hex(), lr=[(0.1 / (1 + self.step)).hex()],
                    gradient_norm=(0.5 + self.step).hex(), state=self.prints(self.step + 1, rank),
                    samples_seen=(self.step + 1) * s.global_batch,
                    ids=files.bulk(self.order[begin : begin + each].astype("<i8").tobytes()), skipped=False,
                    wait_s=wait_s, train_s=round(took_ms / 1000 - wait_s - 0.001, 6),
                    queue_depth=8 - int(wait_s * 1000),
                    microbatch_s=[round(took_ms / 2500, 6), round(took_ms / 1100, 6)],
                )  # fmt: skip
            self.step += 1
            if self._due(self.step * s.microbatches):
                self._rows(first)
                first = self.step
                self.save(publish)
                for rank, history in enumerate(histories):
                    self.say(
                        history, "save_written", self.attempt, rank=rank, step=self.step, bytes=1000, duration_s=0.02
                    )

    def _rows(self, first: int) -> None:
        """Of the updates [first, self.step)."""
        s, each = self.set, self.set.global_batch // self.set.ranks
        steps = np.repeat(np.arange(first, self.step), each)
        places = np.tile(np.arange(each), self.step - first)
        for rank in range(s.ranks):
            position = steps * s.global_batch + rank * each + places
            ids = self.order[position]
            self.rows[rank] = [{
                "position": position, "sample_id": ids, "content": self.digests[ids], "step": steps,
                "microbatch": places * s.microbatches // each, "rank": rank, "attempt": self.attempt,
            }]  # fmt: skip


def large(folder: Path, steps: int = 20_000, kills: int = 200) -> RunPage:
    """As the page has it but for the invariants, whose judging takes longest."""
    run = LargeRun(folder, steps=steps, kills=kills, save_every=100)
    evidence = read_evidence(run.folder)
    verdict = Verdict(
        Judgement.VALID, (), (), (), recoveries(evidence), (), "run-1", 7, "sha256:c", "1", "killpoint run"
    )
    return run_page(evidence, read_measured(run.folder / "history", evidence.history), verdict, None, (), str(folder))
