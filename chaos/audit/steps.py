"""The `step` events of histories, in columns: some 300 bytes each, where an object with its texts takes some 2 KB.

There may be millions of them. A check that looks at all of them looks at columns; one that looks at a few takes these
out as events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from chaos.audit.events import Event, StepDone
from chaos.audit.formats import FormatError
from chaos.audit.segments import I64

Texts = npt.NDArray[Any]  # bytes of ASCII text, or objects where one of them is long or has other characters
NO_ATTEMPT = -(1 << 62)  # in columns, of an event without one
_TEXT_BYTES = 64
_BLOCK = 4096
_NUMBERS = ("t_ns", "clock", "attempt", "rank", "step", "samples_seen")


@dataclass(frozen=True, eq=False)
class Block:
    """Some successive `step` events of one file that name the same parts and equally many rates.

    numbers: int64[events, 6], in the order of _NUMBERS. lr: of each group; state: of each of `parts`.
    """

    file: str
    parts: tuple[str, ...]
    n: I64
    numbers: I64
    skipped: npt.NDArray[np.bool_]
    train_s: npt.NDArray[np.float64]
    loss: Texts
    gradient_norm: Texts
    ids: Texts
    lr: tuple[Texts, ...]
    state: tuple[Texts, ...]

    def event(self, index: int) -> Event[StepDone]:
        t_ns, clock, attempt, rank, step, samples_seen = self.numbers[index].tolist()
        loss, norm, ids = (text(column[index]) for column in (self.loss, self.gradient_norm, self.ids))
        lr, state = (tuple(text(column[index]) for column in columns) for columns in (self.lr, self.state))
        done = StepDone(rank, step, loss, lr, norm, dict(zip(self.parts, state, strict=True)), samples_seen, ids,
                        bool(self.skipped[index]), float(self.train_s[index]))  # fmt: skip
        return Event(self.file, int(self.n[index]), t_ns, clock, None if attempt == NO_ATTEMPT else attempt, done)


def text(value: bytes | str) -> str:
    """One value of a column of texts."""
    return value.decode("ascii") if isinstance(value, bytes) else value


class Steps(Sequence[Event[StepDone]]):
    """`step` events, file by file, each in its own order."""

    def __init__(self, blocks: Iterable[Block] = ()) -> None:
        self.blocks = tuple(blocks)
        self._begins = np.cumsum([0, *(len(block.n) for block in self.blocks)])

    @classmethod
    def of(cls, events: Sequence[Event[StepDone]]) -> Steps:
        if isinstance(events, Steps):
            return events
        blocks: list[Block] = []
        for file in dict.fromkeys(event.file for event in events):
            collector = Collector(file)
            for event in events:
                if event.file == file:
                    collector.add(event)
            blocks += collector.blocks()
        return cls(blocks)

    def __len__(self) -> int:
        return int(self._begins[-1])

    @overload
    def __getitem__(self, index: int) -> Event[StepDone]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Event[StepDone]]: ...
    def __getitem__(self, index: int | slice) -> Event[StepDone] | Sequence[Event[StepDone]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        block = int(np.searchsorted(self._begins, index, side="right")) - 1
        return self.blocks[block].event(index - int(self._begins[block]))

    def __iter__(self) -> Iterator[Event[StepDone]]:
        for block in self.blocks:
            yield from map(block.event, range(len(block.n)))

    def _number(self, name: str) -> I64:
        at = _NUMBERS.index(name)
        return np.concatenate([np.zeros(0, np.int64), *(block.numbers[:, at] for block in self.blocks)])

    @cached_property
    def attempt(self) -> I64:
        return self._number("attempt")

    @cached_property
    def rank(self) -> I64:
        return self._number("rank")

    @cached_property
    def step(self) -> I64:
        return self._number("step")

    @property
    def t_ns(self) -> I64:
        return self._number("t_ns")

    @property
    def samples_seen(self) -> I64:
        return self._number("samples_seen")

    @property
    def n(self) -> I64:
        return np.concatenate([np.zeros(0, np.int64), *(block.n for block in self.blocks)])

    @property
    def skipped(self) -> npt.NDArray[np.bool_]:
        return np.concatenate([np.zeros(0, np.bool_), *(block.skipped for block in self.blocks)])

    def texts(self, name: str, indices: I64) -> list[str]:
        """The texts of this name (loss, gradient_norm, ids) of these events."""
        blocks = np.searchsorted(self._begins, indices, side="right") - 1
        at = indices - self._begins[blocks]
        return [text(getattr(self.blocks[b], name)[i]) for b, i in zip(blocks.tolist(), at.tolist(), strict=True)]

    def files(self, indices: I64) -> list[str]:
        """Names of the files that these events are in, once each, in order of name."""
        blocks = np.unique(np.searchsorted(self._begins, indices, side="right") - 1)
        return sorted({self.blocks[block].file for block in blocks.tolist()})

    @cached_property
    def by_rank(self) -> Mapping[tuple[int | None, int], I64]:
        """(attempt, rank) → indices of its events, ascending."""
        order = np.lexsort((self.rank, self.attempt))
        attempt, rank = self.attempt[order], self.rank[order]
        cuts = np.flatnonzero((attempt[1:] != attempt[:-1]) | (rank[1:] != rank[:-1])) + 1
        return {
            (None if (first := int(self.attempt[own[0]])) == NO_ATTEMPT else first, int(self.rank[own[0]])): own
            for own in np.split(order, cuts)
            if len(own)
        }

    def rates(self) -> set[tuple[str, ...]]:
        """The learning rates that there were; two of them if there were more."""
        found: set[tuple[str, ...]] = set()
        for block in self.blocks:
            found.add(tuple(text(column[0]) for column in block.lr))
            for column in block.lr:
                if len(found) < 2 and (others := np.flatnonzero(column != column[0])).size:
                    found.add(tuple(text(each[others[0]]) for each in block.lr))
        return set(sorted(found)[:2])


class Finder:
    """Some of the events by number of updates done; of several with one number the last one counts."""

    def __init__(self, done: Steps, indices: I64) -> None:
        steps = done.step[indices]
        if np.any(steps[1:] <= steps[:-1]):
            order = np.argsort(steps, kind="stable")
            steps, indices = steps[order], indices[order]
            last = np.append(steps[1:] != steps[:-1], True)
            steps, indices = steps[last], indices[last]
        self.steps, self.indices = steps, indices

    def index(self, step: int) -> int | None:
        """Index of the event among all."""
        place = int(np.searchsorted(self.steps, step))
        found = place < len(self.steps) and self.steps[place] == step
        return int(self.indices[place]) if found else None

    def after(self, step: int) -> I64:
        """Indices of the events of steps step + 1, step + 2, … as far as none is missing."""
        begin = int(np.searchsorted(self.steps, step, side="right"))
        steps = self.steps[begin:]
        missing = np.flatnonzero(steps != step + 1 + np.arange(len(steps)))
        return self.indices[begin : begin + int(missing[0])] if missing.size else self.indices[begin:]


class Collector:
    """Takes the `step` events of one file, line by line, and packs them."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._blocks: list[Block] = []
        self._kind: tuple[tuple[str, ...], int] = ((), 0)
        self._rows: list[tuple[Any, ...]] = []

    def take(self, parts: tuple[str, ...], rates: int, row: tuple[Any, ...]) -> None:
        """row: n, the numbers in the order of _NUMBERS, skipped, train_s, loss, gradient_norm, ids, rates, state.

        Numbers and texts may be bytes of ASCII text, skipped b"true" or b"false".
        """
        if (parts, rates) != self._kind or len(self._rows) == _BLOCK:
            self._pack()
            self._kind = parts, rates
        self._rows.append(row)

    def add(self, event: Event[StepDone]) -> None:
        """Raises FormatError for numbers that a column cannot hold."""
        done = event.what
        attempt = NO_ATTEMPT if event.attempt is None else event.attempt
        numbers = (event.t_ns, event.clock, attempt, done.rank, done.step, done.samples_seen)
        for name, number in zip(_NUMBERS, numbers, strict=True):
            if not NO_ATTEMPT <= number < -NO_ATTEMPT:
                raise FormatError(f"{name} is out of range")
        row = (event.n, *numbers, done.skipped, done.train_s, done.loss, done.gradient_norm, done.ids, *done.lr,
               *done.state.values())  # fmt: skip
        self.take(tuple(done.state), len(done.lr), row)

    def blocks(self) -> tuple[Block, ...]:
        self._pack()
        return tuple(self._blocks)

    def _pack(self) -> None:
        if not self._rows:
            return
        n, *columns = zip(*self._rows, strict=True)
        numbers = np.stack([np.array(list(map(int, column))) for column in columns[:6]], axis=1)
        skipped = np.array([value in (True, b"true") for value in columns[6]])
        train_s = np.array(list(map(float, columns[7])))
        packed = [_packed(column) for column in columns[8:]]
        parts, rates = self._kind
        loss, norm, ids, *others = packed
        self._blocks.append(
            Block(self._file, parts, np.array(n), numbers, skipped, train_s, loss, norm, ids, tuple(others[:rates]),
                  tuple(others[rates:]))
        )  # fmt: skip
        self._rows = []


def _packed(values: Sequence[bytes | str]) -> Texts:
    if set(map(type, values)) == {bytes} or all(map(str.isascii, map(text, values))):
        data = [value if isinstance(value, bytes) else value.encode("ascii") for value in values]
        whole = b"".join(data)
        if max(map(len, data)) <= _TEXT_BYTES and whole.isascii() and b"\0" not in whole:  # NUL would be dropped
            return np.array(data, np.bytes_)
    objects = np.empty(len(values), object)
    objects[:] = [text(value) for value in values]
    return objects
