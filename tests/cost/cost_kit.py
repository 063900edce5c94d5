"""A run's history without a run: a supervisor, ranks and a committer in virtual time, with parts of known lengths.

It trains, saves, is killed and restores as the protocol says, step by step, and knows no formula for what that costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import audit_files as files

from chaos.cost import records as r
from chaos.cost.plan import Planned
from chaos.cost.predict import Setting
from chaos.cost.records import Seen, Struck, Witnessed
from storage.manifest import checkpoint_name

MS = 1_000_000
BOOT = "b"
SUPERVISOR = "supervisor-h-1-1.jsonl"
COMMITTER = "committer-h-2-1.jsonl"
# Lengths in ms of what each recovery consists of; `gap` is what nobody accounts for.
DETECT, FENCE, ACQUIRE, PROPOSE, JOIN = 20, 30, 12, 7, 15
LOAD, CHOOSE, RESTORE, PIPELINE, STEP, WAIT = 40, 9, 50, 3, 100, 6
GAP = 2
BACKGROUND, STALL = 40, 4


@dataclass
class Kill:
    """When so many updates are finished and so many microbatches of the next one; published: of the last save due.

    waiting: that one has not even been staged, since the one before it is still in flight.
    """

    finished: int
    partial: int
    published: bool = True
    rank: int = 0
    waiting: bool = False

    def holds(self, step: int, every: int) -> bool:
        """Whether the save of this step is not published when it strikes."""
        last = self.finished // every * every
        return (step == last and not self.published) or (self.waiting and step == last - every)


@dataclass
class Simulated:
    """Writes the history. lag_ms: how much later everything is on each rank than on the one before. warm_ms: what a new
    standby takes to be warm, which is started after the first new step.
    """

    every: int
    steps: int
    ranks: int = 2
    microbatches: int = 4
    global_batch: int = 16
    lag_ms: int = 0
    events: list[Seen] = field(default_factory=list)
    strikes: list[Struck] = field(default_factory=list)
    boots: dict[str, tuple[str, int]] = field(default_factory=dict)  # file → boot, offset of its clock in ns
    now: int = 1000 * MS
    pids: dict[int, int] = field(default_factory=dict)
    warm_ms: int = 150
    _spare: int | None = None

    def __post_init__(self) -> None:
        self.pids = {rank: 100 + rank for rank in range(self.ranks)}
        self._next_pid = 200
        self.say(SUPERVISOR, None, r.Opened(1, 1, BOOT))
        self.say(SUPERVISOR, None, r.Shape(self.ranks, self.microbatches, self.global_batch, self.steps, self.every))
        for rank in range(self.ranks):
            self.say(self.file(rank), None, r.Opened(self.pids[rank], 1, BOOT))
        self._standby(0)

    def say(self, file: str, attempt: int | None, what: Any, later_ms: float = 0) -> None:
        boot, offset = self.boots.get(file, (BOOT, 0))
        self.events.append(Seen(file, boot, self.now + round(later_ms * MS) + offset, attempt, what))

    def file(self, rank: int) -> str:
        return f"worker-h-{self.pids[rank]}-1.jsonl"

    def pass_ms(self, length: float) -> None:
        self.now += round(length * MS)

    def run(self, kills: list[Kill]) -> Witnessed:
        began, made = 0, None
        for attempt, kill in enumerate([*kills, None]):
            self._begin(attempt, began, made)
            began, made = self._train(attempt, began, made, kill)
        return Witnessed(tuple(self.events), tuple(self.strikes))

    def _standby(self, warm_ms: int) -> int:
        self._spare, self._next_pid = self._next_pid, self._next_pid + 1
        file = f"worker-h-{self._spare}-1.jsonl"
        self.say(file, None, r.Opened(self._spare, 1, BOOT))
        self.say(file, None, r.Warmed(0.001), warm_ms)
        return self._spare

    def _all(self, attempt: int, what: Any) -> None:
        """On every rank, each later than the one before; time passes to the last."""
        for rank in range(self.ranks):
            self.say(self.file(rank), attempt, what(rank), rank * self.lag_ms)
        self.pass_ms((self.ranks - 1) * self.lag_ms)

    def _begin(self, attempt: int, began: int, made: str | None) -> None:
        """From detection on; the first attempt has no loading."""
        self.pass_ms(FENCE)
        self.say(SUPERVISOR, attempt, r.Fenced(attempt))
        self.pass_ms(ACQUIRE)
        self.say(SUPERVISOR, attempt, r.Assigned("rank", 0, self.pids[0]))
        self.pass_ms(PROPOSE)
        self.say(SUPERVISOR, attempt, r.Proposed(PROPOSE / 1e3))
        self._all(attempt, lambda rank: r.Preparing(rank))
        self.pass_ms(JOIN)
        self._all(attempt, lambda rank: r.Joined(rank))
        if made is not None:
            self.pass_ms(GAP + LOAD)
            self._all(attempt, lambda rank: r.Loaded(rank, 1000, LOAD / 1e3))
        self.pass_ms(GAP)
        self.say(SUPERVISOR, attempt, r.Formed(self.ranks))
        self.pass_ms(CHOOSE)
        self.say(SUPERVISOR, attempt, r.Chosen(made, began))
        self.say(SUPERVISOR, attempt, r.Training())
        self.pass_ms(GAP + RESTORE)
        self._all(attempt, lambda rank: r.Restored(rank, began, RESTORE / 1e3))
        self.pass_ms(PIPELINE)
        self._all(attempt, lambda rank: r.PipelineStarted(rank, PIPELINE / 1e3))

    def _train(self, attempt: int, began: int, made: str | None, kill: Kill | None) -> tuple[int, str | None]:
        """Until the kill or the end. Returns what is restored then."""
        newest: tuple[int, str | None] = (began, made)
        for step in range(began, self.steps):
            if kill is not None and step == kill.finished:
                self._strike(attempt, began, kill)
                return newest
            self.pass_ms(STEP)
            parts = (WAIT / 1e3, (STEP - WAIT) / 1e3, 0.0)
            for rank in range(self.ranks):
                self.say(self.file(rank), attempt, r.StepDone(rank, step + 1, *parts))
            if self._spare is None:
                self._standby(self.warm_ms)
            if (step + 1) % self.every == 0 or step + 1 == self.steps:
                held = kill is not None and kill.holds(step + 1, self.every)
                waits = held and kill is not None and kill.waiting and step + 1 == kill.finished
                name = self._save(attempt, step + 1, held, waits)
                newest = newest if held else (step + 1, name)
        self.say(SUPERVISOR, attempt, r.Finished(self.steps))
        return newest

    def _save(self, attempt: int, step: int, held: bool, waits: bool) -> str:
        for rank in range(self.ranks):
            self.say(self.file(rank), attempt, r.SaveDue(rank, step))
        if waits:
            return ""
        self.pass_ms(STALL)
        for rank in range(self.ranks):
            self.say(self.file(rank), attempt, r.SaveStaged(rank, step, STALL / 1e3, 0.0))
            if not held:
                self.say(self.file(rank), attempt, r.SaveWritten(rank, step, 500, 0.03), BACKGROUND / 2)
        name = checkpoint_name(step, attempt)
        if not held:
            self.say(COMMITTER, attempt, r.Published(name, step), BACKGROUND)
        return name

    def _strike(self, attempt: int, began: int, kill: Kill) -> None:
        self.pass_ms(STEP * kill.partial / self.microbatches)
        hit, pid = (kill.finished - began) * self.microbatches + kill.partial, self.pids[kill.rank]
        boot, offset = self.boots.get(self.file(kill.rank), (BOOT, 0))
        self.strikes.append(
            Struck(attempt, "rank", kill.rank, "microbatch.backward", hit, pid, 1, boot, self.now + offset)
        )
        self.pass_ms(DETECT)
        self.say(SUPERVISOR, attempt, r.Detected("rank", pid, 1))
        self.pids[kill.rank] = self._standby(0) if self._spare is None else self._spare
        self._spare = None


def kills_of(run: Sequence[Planned], of: Setting) -> list[Kill]:
    """The planned kills as this simulation takes them, from the faults alone."""
    found, began = [], 0
    for kill in run:
        done = kill.fault["at"]["hit"] - 1
        finished, partial = began + done // of.microbatches, done % of.microbatches + 1
        published = "gate" not in kill.fault or kill.fault["gate"]["point"] == "save.done"
        found.append(Kill(finished, partial, published, kill.rank))
        began = finished // of.every * of.every - (0 if published else of.every)
    return found


def written(witnessed: Witnessed, folder: Path) -> Path:
    """The run folder whose history and receipts say this."""
    history = folder / "history"
    (history / "receipts").mkdir(parents=True)
    names = {kind: name for kinds in r.KINDS.values() for name, kind in kinds.items()}
    recorders: dict[str, files.Recorder] = {}
    for event in witnessed.events:
        body = {"attempt": event.attempt, "t_ns": event.t_ns, **asdict(event.what)}
        if event.file not in recorders:
            role, _, pid, ticks = event.file.removesuffix(".jsonl").split("-")
            recorders[event.file] = files.Recorder(history, role, int(pid), int(ticks), "r", event.t_ns)
        if not isinstance(event.what, r.Opened):
            recorders[event.file].record(names[type(event.what)], **body)
    for number, strike in enumerate(witnessed.strikes):
        body = asdict(strike)
        target = {"pid": body.pop("pid"), "start_ticks": body.pop("start_ticks"), "host": "h"}
        receipt = {"format": "killpoint.receipt/1", "fault": f"f{number}", "run": "r", "kind": "sigkill",
                   "target": target, "gate": None, "history": None, **body}  # fmt: skip
        (history / "receipts" / f"f{number}.json").write_bytes(files.seal(receipt)[0])
    return folder
