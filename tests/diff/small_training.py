"""A training of its own, small and exact, with everything that can be lost on a restart, and each fault to plant.

Two weights, momentum, batch statistics, a rate that falls at every step, three generators that all act on the loss,
epochs in an order of their own, gradients in two microbatches. It shares no code with what is tested but the trace.
"""

from __future__ import annotations

import copy
import hashlib
import math
import random
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from chaos.diff.trace import Start, StepRecord, Trace

ROWS, BATCH = 12, 4
GENERATORS = ("rng.python", "rng.numpy", "rng.torch")
X = np.linspace(-1, 1, ROWS)
Y = 3 * X + 2 + np.sin(9 * X)


@dataclass(frozen=True)
class Fault:
    """kind: a method of `Rank` (or "none"). amount: steps or samples, where the kind has any; part: a generator."""

    kind: str = "none"
    amount: int = 0
    part: str = ""


NONE = Fault()


@dataclass
class Rank:
    """The live state of one rank, and how it goes wrong."""

    rank: int
    ranks: int
    seed: int
    rate: float = 0.05
    step: int = 0
    cursor: int = 0
    weights: list[float] = field(default_factory=lambda: [0.1, -0.2])
    momentum: list[float] = field(default_factory=lambda: [0.0, 0.0])
    mean: float = 0.0
    scheduled: int = 0
    order_of: int | None = None
    cut: bool = False
    generators: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in GENERATORS:
            self.generators.setdefault(name, self.seeded(name))

    def seeded(self, name: str) -> Any:
        if name == "rng.python":
            return random.Random(self.seed * 10 + self.rank)
        return np.random.Generator(np.random.PCG64(self.seed * 10 + self.rank + 5 * (name == "rng.torch")))

    def __deepcopy__(self, memo: dict[int, Any]) -> Rank:
        """As copy.deepcopy would do it, without copying the 625 numbers of Python's generator one by one."""
        generators = {name: copy.deepcopy(self.generators[name], memo) for name in GENERATORS if name != "rng.python"}
        generators["rng.python"] = random.Random(0)
        generators["rng.python"].setstate(self.generators["rng.python"].getstate())
        lists = {"weights": list(self.weights), "momentum": list(self.momentum)}
        return replace(self, generators={name: generators[name] for name in GENERATORS}, **lists)

    # -- a step

    def samples(self) -> list[int]:
        each = BATCH // self.ranks
        positions = range(self.cursor + self.rank * each, self.cursor + (self.rank + 1) * each)
        return [self.sample(position) for position in positions]

    def sample(self, position: int) -> int:
        epoch = position // ROWS if self.order_of is None else self.order_of
        order = np.random.Generator(np.random.PCG64([self.seed, epoch])).permutation(ROWS)
        return int(order[position % ROWS])

    def forward(self, ids: list[int]) -> tuple[float, np.ndarray[Any, Any]]:
        """Sum of the losses and of the gradients over the ids; a lost microbatch is missing from the gradients."""
        loss, gradient = 0.0, np.zeros(2)
        for place, sample in enumerate(ids):
            x = X[sample] * (1 + 0.1 * self.generators["rng.python"].random())
            x += 0.1 * float(self.generators["rng.numpy"].standard_normal())
            kept = float(self.generators["rng.torch"].random() > 0.2)
            self.mean = 0.9 * self.mean + 0.1 * x
            error = self.weights[0] * x * kept + self.weights[1] - Y[sample] - 0.01 * self.mean
            loss += error * error
            if not (self.cut and place < len(ids) / 2):
                gradient += 2 * error * np.array([x * kept, 1.0])
        self.cut = False
        return loss, gradient

    def update(self, gradient: np.ndarray[Any, Any]) -> float:
        """Returns the rate that was used."""
        rate = self.rate / (1 + 0.1 * self.scheduled)
        for i in (0, 1):
            self.momentum[i] = 0.9 * self.momentum[i] + float(gradient[i])
            self.weights[i] -= rate * self.momentum[i]
        self.scheduled += 1
        self.step += 1
        self.cursor += BATCH
        return rate

    # -- what a trace says of it

    def digests(self) -> dict[str, str]:
        parts: dict[str, object] = {
            "model": self.weights, "optimizer": self.momentum, "buffers": self.mean, "scheduler": self.scheduled,
            "progress": (self.step, self.cursor),
        }  # fmt: skip
        for name, generator in self.generators.items():
            parts[name] = generator.getstate() if name == "rng.python" else str(generator.bit_generator.state)
        return {part: hashlib.sha256(repr(value).encode()).hexdigest()[:16] for part, value in parts.items()}

    def values(self) -> dict[str, tuple[str, ...]]:
        return {"model/w": _hex(self.weights), "optimizer/w/momentum": _hex(self.momentum),
                "buffer/mean": _hex([self.mean])}  # fmt: skip

    # -- faults of a restart; past: this rank's states after each step of the same attempt

    def plant(self, fault: Fault, past: dict[int, Rank]) -> None:
        old = past[self.step - fault.amount] if fault.kind.startswith("stale") else self
        match fault.kind:
            case "drop-optimizer":
                self.momentum = [0.0, 0.0]
            case "drop-scheduler":
                self.scheduled = 0
            case "drop-buffers":
                self.mean = 0.0
            case "reseed":
                self.generators[fault.part] = self.seeded(fault.part)
            case "cursor":
                self.cursor += fault.amount
            case "order":
                self.order_of = 0
            case "gradients":
                self.cut = True
            case "rounding":
                self.weights = [float(np.float32(w)) for w in self.weights]
            case "stale-scheduler":
                self.scheduled = old.scheduled
            case "stale-model":
                self.weights = list(old.weights)
            case "stale-model-optimizer":
                self.weights, self.momentum = list(old.weights), list(old.momentum)
            case "none":
                pass
            case _:
                raise ValueError(fault.kind)


def _hex(numbers: list[float]) -> tuple[str, ...]:
    return tuple(number.hex() for number in numbers)


class Training:
    """All ranks, and the trace that they leave."""

    def __init__(self, seed: int = 7, ranks: int = 1) -> None:
        self.ranks = [Rank(rank, ranks, seed) for rank in range(ranks)]
        self.attempt = 0
        self.records: list[StepRecord] = []
        self.starts: list[Start] = []
        self.past: dict[int, list[Rank]] = {}
        self._begin(None)

    def _begin(self, checkpoint: str | None) -> None:
        self.starts += [
            Start(self.attempt, r.rank, r.step, r.cursor, r.digests(), checkpoint, r.values()) for r in self.ranks
        ]
        self.past[self.ranks[0].step] = copy.deepcopy(self.ranks)

    def train(self, upto: int) -> Training:
        while self.ranks[0].step < upto:
            self._step()
        return self

    def _step(self) -> None:
        ids = [rank.samples() for rank in self.ranks]
        passes = [rank.forward(own) for rank, own in zip(self.ranks, ids, strict=True)]
        loss = sum(loss for loss, _ in passes) / BATCH
        gradient = np.sum([gradient for _, gradient in passes], axis=0) / BATCH
        for rank, own in zip(self.ranks, ids, strict=True):
            rate = rank.update(gradient)
            digest = hashlib.sha256(repr(own).encode()).hexdigest()
            self.records.append(
                StepRecord(
                    step=rank.step, rank=rank.rank, attempt=self.attempt, ids_digest=digest, lr=(rate.hex(),),
                    loss=loss.hex(), state=rank.digests(), ids=tuple(own),
                    gradient_norm=math.hypot(*gradient).hex(), samples_seen=rank.step * BATCH, values=rank.values(),
                )
            )  # fmt: skip
        self.past[self.ranks[0].step] = copy.deepcopy(self.ranks)

    def restart(self, step: int, fault: Fault = NONE) -> Training:
        """A new attempt from the checkpoint of `step`, which is that of the latest attempt that did it."""
        self.attempt += 1
        self.ranks = copy.deepcopy(self.past[step])
        for rank in self.ranks:
            rank.plant(fault, {at: states[rank.rank] for at, states in self.past.items()})
        self._begin(f"s{step:08d}")
        return self

    def trace(self, label: str = "trace", target: int | None = None) -> Trace:
        last = max((r.step for r in self.records), default=0)
        return Trace(label, len(self.ranks), BATCH, ROWS, target or last, tuple(self.starts), tuple(self.records))


def continuous(steps: int, seed: int = 7, ranks: int = 1) -> Trace:
    return Training(seed, ranks).train(steps).trace("continuous")


def recovered(
    steps: int, restored: int, killed: int, fault: Fault = NONE, seed: int = 7, ranks: int = 1
) -> Trace:
    """Killed after `killed` updates, went on from the checkpoint of `restored` to `steps`."""
    return Training(seed, ranks).train(killed).restart(restored, fault).train(steps).trace("recovered")


def without_starts(trace: Trace) -> Trace:
    """A recorder that does not digest what it restored."""
    return replace(trace, starts=())


def without(trace: Trace, **fields: Any) -> Trace:
    """Every record with these fields set anew: what was not recorded."""
    return replace(trace, records=tuple(replace(record, **fields) for record in trace.records))
