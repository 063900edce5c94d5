"""Position → sample id: the order of samples as a pure, versioned function (invariants 3 and 5).

Format `killpoint.plan/1`. The order is never iterator state: any position of any epoch is computed on its
own, in constant memory, whatever the size of the dataset. Row groups are permuted, then rows inside windows
of a few consecutive groups of that order, so that one step reads few row groups. Epochs follow one another as
one stream: position p lies in epoch p // rows, and nothing is dropped at an epoch's end.

The permutation is a mixed-radix Feistel network with cycle walking (Black and Rogaway, "Ciphers with arbitrary
finite domains", 2002); the round function is splitmix64 (Steele, Lea, Flood, 2014). `README.md` of this package
describes the format in prose, `tests/trainers/plan_vectors.json` holds its test vectors; the auditor implements
it a second time from that description.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from storage.sealed import canonical

FORMAT = "killpoint.plan/1"
_ROUNDS = 6
_MASK = (1 << 64) - 1
_ORDER_OF_GROUPS, _ROWS_OF_WINDOW = 1, 2

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]


def _mix(x: int) -> int:
    """splitmix64 of one 64-bit integer."""
    z = (x + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def _mix_array(x: U64) -> U64:
    """splitmix64 of each element; x: uint64[n] → uint64[n]."""
    z = x + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    out: U64 = z ^ (z >> np.uint64(31))
    return out


def _key(seed: int, epoch: int, purpose: int, index: int) -> int:
    return _mix(_mix(_mix(_mix(seed) ^ epoch) ^ purpose) ^ index)


@dataclass(frozen=True)
class _Feistel:
    """A bijection of [0, size) chosen by a 64-bit key."""

    size: int
    key: int

    @property
    def _radices(self) -> tuple[int, int]:
        a = math.isqrt(self.size - 1) + 1 if self.size > 1 else 1
        return a, -(-self.size // a)

    def _rounds(self, y: U64, *, inverse: bool) -> U64:
        a, b = (np.uint64(radix) for radix in self._radices)
        left, right = y // b, y % b
        order = range(_ROUNDS - 1, -1, -1) if inverse else range(_ROUNDS)
        for i in order:
            k = np.uint64(_mix((self.key + i) & _MASK))
            other, radix = (right, a) if i % 2 == 0 else (left, b)
            shift = _mix_array(k ^ other) % radix
            shift = radix - shift if inverse else shift
            if i % 2 == 0:
                left = (left + shift) % a
            else:
                right = (right + shift) % b
        return left * b + right

    def _walk(self, x: U64, *, inverse: bool) -> U64:
        y = self._rounds(x, inverse=inverse)
        while (outside := y >= np.uint64(self.size)).any():
            y[outside] = self._rounds(y[outside], inverse=inverse)
        return y

    def forward(self, x: U64) -> U64:
        """x: uint64[n] of values below size → uint64[n]."""
        return self._walk(x, inverse=False)

    def backward(self, x: U64) -> U64:
        return self._walk(x, inverse=True)


@dataclass(frozen=True)
class Plan:
    """The order of one dataset's samples over all epochs.

    `rows` samples in groups of `group_rows` (the last may be shorter); rows are permuted inside windows of
    `window_groups` groups. `seed` is an unsigned 64-bit integer.
    """

    rows: int
    group_rows: int
    window_groups: int
    seed: int

    def __post_init__(self) -> None:
        if min(self.rows, self.group_rows, self.window_groups) < 1:
            raise ValueError(f"a plan needs at least one row, one row a group and one group a window: {self}")
        if not 0 <= self.seed <= _MASK:
            raise ValueError(f"the plan's seed must be an unsigned 64-bit integer, not {self.seed}")

    @property
    def fingerprint(self) -> str:
        return "sha256:" + hashlib.sha256(canonical({"format": FORMAT, **asdict(self)})).hexdigest()

    def sample_ids(self, positions: npt.ArrayLike) -> I64:
        """positions: int64[n], each ≥ 0, in any order → sample ids int64[n], each in [0, rows)."""
        flat = np.asarray(positions, dtype=np.int64)
        if flat.size and int(flat.min()) < 0:
            raise ValueError("a plan position is never negative")
        ids = np.empty(flat.shape, dtype=np.int64)
        epochs = flat // self.rows
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            ids[chosen] = self._epoch_ids(int(epoch), flat[chosen] % self.rows)
        return ids

    def _epoch_ids(self, epoch: int, offsets: I64) -> I64:
        groups = -(-self.rows // self.group_rows)
        missing = groups * self.group_rows - self.rows  # rows that the last group lacks
        order = _Feistel(groups, _key(self.seed, epoch, _ORDER_OF_GROUPS, 0))
        short_at = int(order.backward(np.array([groups - 1], dtype=np.uint64))[0])
        short_window = short_at // self.window_groups
        full = self.window_groups * self.group_rows
        after_short = offsets >= (short_window + 1) * full - missing
        windows = np.where(after_short, offsets + missing, offsets) // full
        in_epoch_order = np.empty_like(offsets)  # as if the short group were full
        for window in np.unique(windows):
            chosen = windows == window
            start = int(window) * full - (missing if window > short_window else 0)
            size = min(full, groups * self.group_rows - int(window) * full)
            size -= missing if window == short_window else 0
            inner = _Feistel(size, _key(self.seed, epoch, _ROWS_OF_WINDOW, int(window)))
            row = inner.forward((offsets[chosen] - start).astype(np.uint64)).astype(np.int64)
            if window == short_window:
                end_of_short = (short_at + 1) * self.group_rows - missing - int(window) * full
                row = np.where(row < end_of_short, row, row + missing)
            in_epoch_order[chosen] = int(window) * full + row
        group, row = np.divmod(in_epoch_order, self.group_rows)
        return order.forward(group.astype(np.uint64)).astype(np.int64) * self.group_rows + row
