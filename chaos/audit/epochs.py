"""Part of invariant 3: each finished epoch holds every sample once, by the ids alone, whatever the plan says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chaos.audit.evidence import I64

_INT32 = 1 << 31


class Epochs:
    """Whether each finished epoch has every sample once, by the ids alone, whatever the plan says."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._seen = np.zeros(rows, np.bool_)
        self._epoch = 0
        self._faults: dict[int, str] = {}

    def take(self, pieces: Sequence[tuple[I64, I64]]) -> None:
        """pieces: positions, ascending, and the sample ids there; of one window, behind those of the calls before.

        Each position comes once in all.
        """
        pieces = [piece for piece in pieces if len(piece[0])]
        if not self._rows or not pieces:
            return
        first = min(int(position[0]) for position, _ in pieces) // self._rows
        last = max(int(position[-1]) for position, _ in pieces) // self._rows
        for epoch in range(first, last + 1):
            if epoch != self._epoch:
                self._seen[:] = False
                self._epoch = epoch
            ends = epoch * self._rows, (epoch + 1) * self._rows
            cuts = ((ids, *np.searchsorted(position, ends).tolist()) for position, ids in pieces)
            self._take(epoch, np.concatenate([ids[begin:end] for ids, begin, end in cuts]))

    def _take(self, epoch: int, ids: I64) -> None:
        """Some ids of one epoch."""
        if not len(ids):
            return
        least, greatest = int(ids.min()), int(ids.max())
        if least < 0 or greatest >= self._rows:
            alien = least if least < 0 else int(ids[ids >= self._rows].min())
            self._faults.setdefault(epoch, f"epoch {epoch} holds sample {alien}, which the dataset lacks")
            ids = ids[(ids >= 0) & (ids < self._rows)]
        again = self._again(ids)
        if again.size:
            self._faults.setdefault(epoch, f"epoch {epoch} holds sample {int(again.min())} more than once")
        self._seen[ids] = True

    def _again(self, ids: I64) -> I64:
        """Those that have been seen, or come twice here. ids: of the dataset."""
        ascending = np.sort(ids.astype(np.int32) if self._rows <= _INT32 else ids)  # half as wide sorts faster
        twice = ascending[1:][ascending[1:] == ascending[:-1]]
        return np.concatenate([twice, ids[self._seen.take(ids, mode="wrap")]])  # none is outside

    def faults(self, cursor: int) -> list[str]:
        """Of epochs that are finished: a sample that comes twice means, by counting, that another is missing."""
        return [text for epoch, text in sorted(self._faults.items()) if (epoch + 1) * self._rows <= cursor]
