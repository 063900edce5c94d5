"""Plan format killpoint.plan/1, position → sample id, written a second time from its description (invariant 3).

All arithmetic is modulo 2^64. Positions are worked off in pieces, so memory is constant whatever their number.
Unlike a trainer, which looks up one batch, this runs over long stretches: every element carries the domain and
the round keys of its own window, so that one pass permutes many windows at once.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from chaos.audit.evidence import I64, U64
from chaos.audit.facts import PlanSpec
from chaos.audit.formats import canonical, sha256_text

_MASK = (1 << 64) - 1
_ROUNDS = 6
_PIECE = 1 << 16
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def splitmix64(x: U64) -> U64:
    """One step of splitmix64 for each element."""
    z = x + np.uint64(_GOLDEN)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_FIRST)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_SECOND)
    result: U64 = z ^ (z >> np.uint64(31))
    return result


def _words(*values: int) -> U64:
    return np.array([value & _MASK for value in values], dtype=np.uint64)


def _keys(seed: int, epoch: int, purpose: int, index: U64) -> U64:
    """key(seed, epoch, purpose, i) for each i of `index`."""
    state = splitmix64(splitmix64(splitmix64(_words(seed)) ^ _words(epoch)) ^ _words(purpose))
    return splitmix64(state ^ index)


def permute(size: U64, key: U64, x: U64, root: U64) -> U64:
    """feistel(size, key, x), element by element; root: ceil(sqrt(size)). All have one shape, and x < size."""
    b = (size + root - np.uint64(1)) // root
    y = x.copy()
    walking = np.arange(len(x))
    while walking.size:
        n, left_radix, right_radix, k = size[walking], root[walking], b[walking], key[walking]
        left, right = np.divmod(y[walking], right_radix)
        for i in range(_ROUNDS):
            round_key = splitmix64(k + np.uint64(i))
            if i % 2 == 0:
                left = (left + splitmix64(round_key ^ right) % left_radix) % left_radix
            else:
                right = (right + splitmix64(round_key ^ left) % right_radix) % right_radix
        walked = left * right_radix + right
        y[walking] = walked
        walking = walking[walked >= n]
    return y


def unpermute(size: int, key: int, y: int) -> int:
    """The x for which `permute` gives y: the same walk backwards, with each round undone."""
    root = _ceil_root(size)
    b = -(-size // root)
    round_keys = splitmix64(_words(*(key + i for i in range(_ROUNDS))))
    x = y
    while True:
        left, right = divmod(x, b)
        for i in reversed(range(_ROUNDS)):
            known = _words(right if i % 2 == 0 else left)
            mixed = int(splitmix64(round_keys[i] ^ known)[0])
            if i % 2 == 0:
                left = (left - mixed) % root
            else:
                right = (right - mixed) % b
        x = left * b + right
        if x < size:
            return x


def _ceil_root(size: int) -> int:
    """Smallest a with a·a ≥ size."""
    root = math.isqrt(size)
    return root if root * root >= size else root + 1


@dataclass(frozen=True)
class Plan:
    """The order of one dataset's samples over all epochs. Raises ValueError for impossible parameters."""

    rows: int
    group_rows: int
    window_groups: int
    seed: int

    def __post_init__(self) -> None:
        if min(self.rows, self.group_rows, self.window_groups) < 1 or not 0 <= self.seed <= _MASK:
            raise ValueError(f"no plan has these parameters: {self}")

    @property
    def groups(self) -> int:
        return -(-self.rows // self.group_rows)

    def sample_ids(self, positions: npt.ArrayLike) -> I64:
        """positions: int64[n], each ≥ 0, in any order → sample ids int64[n]."""
        wanted = np.asarray(positions, dtype=np.int64)
        ids = np.empty(len(wanted), dtype=np.int64)
        for start in range(0, len(wanted), _PIECE):
            piece = wanted[start : start + _PIECE]
            epochs, offsets = np.divmod(piece, self.rows)
            for epoch in np.unique(epochs).tolist():
                of_epoch = epochs == epoch
                ids[start : start + _PIECE][of_epoch] = self._in_epoch(epoch, offsets[of_epoch])
        return ids

    def _in_epoch(self, epoch: int, offsets: I64) -> I64:
        """Sample ids at offsets (each in [0, rows)) of one epoch."""
        full = self.group_rows * self.window_groups
        short_at, lacking = self._short_group(epoch), self.groups * self.group_rows - self.rows
        short_window = short_at // self.window_groups
        # Where the offset would be if the short group were full: windows then all begin at multiples of `full`.
        after = (short_window + 1) * full - lacking
        windows = np.where(offsets < after, offsets // full, (offsets + lacking) // full)
        begins = windows * full - np.where(windows > short_window, lacking, 0)
        distinct, which = np.unique(windows, return_inverse=True)
        sizes = np.minimum(full, self.groups * self.group_rows - distinct * full)
        sizes = sizes - np.where(distinct == short_window, lacking, 0)
        roots = np.array([_ceil_root(size) for size in sizes.tolist()], np.uint64)
        keys = _keys(self.seed, epoch, 2, distinct.astype(np.uint64))
        inside = (offsets - begins).astype(np.uint64)
        rows = permute(sizes.astype(np.uint64)[which], keys[which], inside, roots[which]).astype(np.int64)
        # Rows behind the short group's end skip the rows that it lacks.
        end_of_short = (short_at - short_window * self.window_groups + 1) * self.group_rows - lacking
        rows += np.where((windows == short_window) & (rows >= end_of_short), lacking, 0)
        places, row = np.divmod(rows, self.group_rows)
        return self._group_at(epoch, windows * self.window_groups + places) * self.group_rows + row

    def _group_at(self, epoch: int, places: I64) -> I64:
        """Group at each place of the epoch's order of groups."""
        count = len(places)
        size = np.full(count, self.groups, np.uint64)
        key = np.broadcast_to(_keys(self.seed, epoch, 1, _words(0)), count)
        root = np.full(count, _ceil_root(self.groups), np.uint64)
        return permute(size, key, places.astype(np.uint64), root).astype(np.int64)

    def _short_group(self, epoch: int) -> int:
        """Place of the last group, which may be short, in the epoch's order."""
        return unpermute(self.groups, int(_keys(self.seed, epoch, 1, _words(0))[0]), self.groups - 1)


def plan_fingerprint(plan: PlanSpec) -> str:
    """As manifests hold it: sha256 of the canonical JSON of format and parameters."""
    return sha256_text(canonical({"format": "killpoint.plan/1", **asdict(plan)}))
