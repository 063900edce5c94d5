"""Lineages for property-based tests: runs of a few attempts, drawn at random, and one alteration of each.

A lineage is written by `simulated_run`. An alteration changes ledger rows before they are sealed, what an attempt
chooses, or cuts what lies on disk afterwards; all digests fit but for those of a file that is cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from lineage_reference import World
from simulated_run import Settings, Simulation, fault

COLUMNS = ("position", "sample_id", "content", "step", "microbatch")


@dataclass(frozen=True)
class Alteration:
    """kind: one of `KINDS`. at: number of the segment that has rows, of the file, or the first life that it may strike;
    row, other, count: which rows, or how many entries or bytes.
    """

    kind: str
    at: int
    row: int
    other: int
    count: int


# What is changed in rows, in choices, and on disk. swap_* exchanges a column of two rows.
IN_ROWS = ("gap", "duplicate", "echo", "swap_samples", "swap_contents", "swap_steps", "swap_microbatches", "tail",
           "attempt_added", "attempt_instead", "attempt_cursor")  # fmt: skip
IN_CHOICES = ("fork_older", "fork_fresh", "fork_abandoned", "fork_lie", "fork_damaged")
ON_DISK = ("cut_log", "cut_file", "lose_file")
KINDS = ("nothing", *IN_ROWS, *IN_CHOICES, *ON_DISK)


@dataclass(frozen=True)
class Life:
    """One attempt that is killed. tail: updates whose save is lost with it. half: it dies inside a step.

    damaged: its newest checkpoint is damaged before the next attempt chooses. fenced: attempts that then die before
    they choose.
    """

    steps: int
    tail: bool
    half: bool
    damaged: bool
    fenced: int


@dataclass(frozen=True)
class Lineage:
    settings: Settings
    lives: tuple[Life, ...]
    last: int  # updates that the last attempt gets done at most
    alteration: Alteration


@st.composite
def lineages(draw: st.DrawFn, kind: str) -> Lineage:
    """kind: of the alteration."""
    small = st.integers(1, 3)
    least = {"fork_abandoned": 2}.get(kind, int(kind.startswith(("fork", "attempt"))))
    ranks, each = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    microbatches = 2 if kind == "swap_microbatches" else draw(st.integers(1, 2))
    save_every = 2 if kind == "swap_steps" else draw(st.integers(1, 2))
    damaged = st.sampled_from((True, True, False)) if kind in ("fork_abandoned", "fork_damaged") else st.booleans()
    lives = draw(st.lists(st.builds(Life, st.integers(1, 4), st.sampled_from((True, False)), st.booleans(), damaged,
                                    st.sampled_from((0, 0, 1, 2))), min_size=least, max_size=3))  # fmt: skip
    settings = Settings(
        ranks=ranks, microbatches=microbatches, global_batch=ranks * microbatches * each,
        steps=draw(st.integers(3, 8)), save_every=save_every, keep=draw(st.sampled_from((2, 3, 99))),
        save_every_microbatches=draw(st.sampled_from((None, None, 1, 3))),
        rows=draw(st.integers(4, 17)), group_rows=draw(st.integers(1, 5)), window_groups=draw(small),
        seed=draw(st.integers(0, 3)), scheduler=False, buffers=False, optimizer="sgd",
    )  # fmt: skip
    places = st.integers(0, 7)
    alteration = st.builds(Alteration, st.just(kind), st.integers(0, 3), places, places, small)
    return Lineage(settings, tuple(lives), draw(st.integers(1, 8)), draw(alteration))


class _Rows:
    """The alteration of rows, as an edit of the simulation."""

    def __init__(self, alteration: Alteration) -> None:
        self.what, self.written = alteration, 0
        self.sim: Simulation | None = None
        self.previous: dict[str, Any] = {}
        self.open: dict[int, list[dict[str, Any]]] = {}  # by rank: consumed since its last segment

    def __call__(self, kind: str, thing: Any) -> None:
        if kind == "rows":
            if self.what.kind == "attempt_cursor" and thing["attempt"] >= 1 + self.what.at % 2:
                self._shift(thing)
            self.open.setdefault(thing["rank"], []).append(dict(thing))
        if kind == "segment":
            rows, attempt = thing["rows"], thing["meta"]["attempt"]
            left = [each for each in self.open.pop(thing["meta"]["rank"], []) if each["attempt"] != attempt]
            whole = {name: rows[name] for name in COLUMNS}
            if self.what.kind in ("attempt_added", "attempt_instead") and left:
                own = [rows] if self.what.kind == "attempt_added" else []
                for name in COLUMNS:
                    rows[name] = np.concatenate([*(each[name] for each in left), *(each[name] for each in own)])
            elif self.written == self.what.at and len(rows["position"]):
                self._alter(rows)
            self.previous, self.written = whole, self.written + bool(len(whole["position"]))

    def _shift(self, thing: dict[str, Any]) -> None:
        """Trained from another attempt's cursor on."""
        sim = self.sim
        assert sim is not None
        thing["position"] = thing["position"] + self.what.count * sim.set.global_batch
        thing["sample_id"] = np.array([sim.planned(p) for p in thing["position"].tolist()], np.int64)
        thing["content"] = np.array([sim.digests[i] for i in thing["sample_id"].tolist()], np.uint64)

    def _alter(self, rows: dict[str, Any]) -> None:
        size = len(rows["position"])
        i = self.what.row % size
        j = (size - 1 - self.what.other) % size
        index = np.arange(size)
        match self.what.kind:
            case "gap":
                index = np.delete(index, slice(i, i + self.what.count))
            case "tail":
                index = index[: max(0, size - self.what.count)]
            case "duplicate":
                index = np.append(index, [i] * self.what.count)
            case "echo" if self.previous and len(self.previous["position"]):
                k = self.what.row % len(self.previous["position"])
                for name in COLUMNS:
                    rows[name] = np.append(rows[name], self.previous[name][k])
                return
            case "swap_samples" | "swap_contents" | "swap_steps" | "swap_microbatches":
                names = {"samples": ("sample_id", "content"), "contents": ("content",), "steps": ("step",),
                         "microbatches": ("microbatch",)}[self.what.kind.removeprefix("swap_")]  # fmt: skip
                for name in names:
                    rows[name] = rows[name].copy()
                    rows[name][[i, j]] = rows[name][[j, i]]
        for name in COLUMNS:
            rows[name] = rows[name][index]


def write(lineage: Lineage, folder: Path) -> World:
    """The run on disk, altered; returns what it was meant to be."""
    edit, s = _Rows(lineage.alteration), lineage.settings
    killed = [fault(n, n, "rank", 0, "step.end") for n in range(10)]
    sim = Simulation(folder, replace(s, faults=killed), edit)
    edit.sim = sim
    sim.start()
    abandoned: list[list[dict[str, Any]]] = []
    for number, life in enumerate(lineage.lives):
        _live(sim, life)
        _next(sim, life, lineage.alteration, number, abandoned)
    sim.train(min(s.steps, sim.step + lineage.last))
    sim.finish(sim.step == s.steps)
    _cut(folder / "store", lineage.alteration)
    digests = [int(digest) for digest in sim.digests]
    return World(s.rows, s.group_rows, s.window_groups, s.seed, s.global_batch, s.ranks, s.microbatches, digests)


def _live(sim: Simulation, life: Life) -> None:
    last = sim.set.steps - 1
    sim.train(min(last, sim.step + life.steps))
    if life.tail:
        sim.train(min(last, sim.step + 1), publish=False)
    if life.half and sim.set.microbatches > sim.microbatch + 1:
        sim.train(sim.step, publish=False, microbatches=sim.microbatch + 1)
    sim.pending = []


def _next(sim: Simulation, life: Life, alteration: Alteration, number: int, abandoned: list[Any]) -> None:
    """A rank is killed; the next attempt begins, and chooses as the alteration says."""
    sim.kill(fault(sim.attempt, sim.attempt, "rank", 0, "step.end"))
    there = [p for p in sim.branch if p["name"] not in sim.retired]
    damaged = life.damaged and len(there) > 1 and there[-1] not in (line[-1] for line in abandoned)
    if damaged:
        planned = fault(100 + sim.attempt, sim.attempt, "store", None, "", kind="damage")
        sim.damage(f"shards/{there[-1]['name']}-r0000.safetensors", planned)
        abandoned.append(list(sim.branch))
    for _ in range(life.fenced + 1):
        sim.fence()
    before, kind = list(sim.branch), alteration.kind if number >= alteration.at % 2 else ""
    reject, take = int(damaged), int(damaged)
    match kind:
        case "fork_older" if len(there) > take + 1:
            take += 1
        case "fork_fresh":
            take = len(there)
        case "fork_lie" if len(there) > take + 1:
            reject, take = reject + 1, take + 1
        case "fork_damaged" if damaged:
            reject, take = 0, 0
        case "fork_abandoned":
            lines = [line for line in abandoned if line != before and line[-1]["name"] not in sim.retired]
            if lines:
                sim.branch, reject, take = list(lines[0]), 0, 0
    sim.choose(reject, take)
    sim.restore()


def _cut(store: Path, alteration: Alteration) -> None:
    ledgers = sorted((store / "ledger").iterdir())
    match alteration.kind:
        case "cut_log":
            for path in sorted((store / "log").iterdir())[-alteration.count :]:
                path.unlink()
        case "cut_file" if ledgers:
            path = ledgers[alteration.at % len(ledgers)]
            path.write_bytes(path.read_bytes()[: -alteration.count])
        case "lose_file" if ledgers:
            ledgers[alteration.at % len(ledgers)].unlink()
