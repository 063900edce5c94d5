"""Plan format killpoint.plan/1, position → sample id, written a second time from its description (invariant 3).

All arithmetic is modulo 2^64. Positions are worked off in pieces, so memory is constant whatever their number.
Unlike a trainer, which looks up one batch, this runs over long stretches. A round mixes one half of a number with
its key, and a half has few values: where many numbers share a domain, each round's mixing is tabulated once.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from chaos.audit.evidence import I64, U64
from chaos.audit.facts import PlanSpec
from chaos.audit.formats import canonical, sha256_text

_MASK = (1 << 64) - 1
_ROUNDS = 6
_TURNS = _ROUNDS // 2 + 1  # a half begins below its radix, and each of its rounds adds less than that
_PIECE = 1 << 14  # what a piece needs stays in the processor's cache
_ORDERED = 1 << 15  # groups whose order is kept as a whole
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
    """feistel(size, key, x), element by element; root: ceil(sqrt(size)). All have one shape.

    x: below size, or where a walk stands that has left it.
    """
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


def permute_tabled(size: int, keys: U64, which: I64 | None, x: I64) -> I64:
    """feistel(size, keys[which[i]], x[i]) for each i; the same as `permute`, faster where x is long.

    keys: one of each bijection; which: int64 like x, None if there is one key only; x: int64, each in [0, size).
    """
    a = _ceil_root(size)
    b = -(-size // a)
    if len(keys) * _ROUNDS * (a + b) > 8 * len(x):  # the tables would cost more than they save
        key = np.broadcast_to(keys, len(x)) if which is None else keys[which]
        words = (np.full(len(x), word, np.uint64) for word in (size, a))
        return permute(next(words), key, x.astype(np.uint64), next(words)).astype(np.int64)
    evens, odds, firsts, seconds = _tables(size, keys.tobytes())
    left = x // b
    right = x - left * b
    if which is not None:  # of a key's part of the tables
        left += which * (_TURNS * a)
        right += which * (_TURNS * b)
    shift = np.empty_like(x)
    for even, odd in zip(evens, odds, strict=True):
        left += np.take(even, right, out=shift, mode="wrap")  # none is outside; to raise would need a copy
        right += np.take(odd, left, out=shift, mode="wrap")
    np.take(seconds, right, out=shift, mode="wrap")
    np.take(firsts, left, out=right, mode="wrap")
    right += shift
    walking = np.flatnonzero(right >= size)
    if walking.size:
        key = np.broadcast_to(keys, len(walking)) if which is None else keys[which[walking]]
        words = (np.full(len(walking), word, np.uint64) for word in (size, a))
        right[walking] = permute(next(words), key, right[walking].astype(np.uint64), next(words)).astype(np.int64)
    return right


@lru_cache(4)
def _tables(size: int, keys: bytes) -> tuple[I64, I64, I64, I64]:
    """Of the bijections of these keys (their bytes): what even rounds add to the left half for each value of the
    right one, what odd rounds add to the right half, int64[3, ...]; and what the halves stand for in the end.

    A half is not reduced in between: each of its rounds adds less than its radix, so it stays below _TURNS times that.
    """
    a = _ceil_root(size)
    b = -(-size // a)
    words = np.frombuffer(keys, np.uint64)
    evens, odds = (
        np.tile(_round_shifts(words, first, values, radix), (1, 1, _TURNS)).reshape(_ROUNDS // 2, -1)
        for first, values, radix in ((0, b, a), (1, a, b))
    )
    return evens, odds, np.tile(np.arange(a) * b, _TURNS * len(words)), np.tile(np.arange(b), _TURNS * len(words))


def _round_shifts(keys: U64, first: int, values: int, radix: int) -> I64:
    """What rounds first, first + 2, … add to one half for every value of the other, modulo radix.

    int64[rounds, keys, values].
    """
    rounds = np.arange(first, _ROUNDS, 2, dtype=np.uint64)
    mixed = splitmix64(splitmix64(keys + rounds[:, None])[:, :, None] ^ np.arange(values, dtype=np.uint64))
    return (mixed % np.uint64(radix)).astype(np.int64)


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
            first, last = int(piece.min()) // self.rows, int(piece.max()) // self.rows
            if first == last:
                ids[start : start + _PIECE] = self._in_epoch(first, piece - first * self.rows)
                continue
            epochs, offsets = np.divmod(piece, self.rows)
            for epoch in np.unique(epochs).tolist():
                of_epoch = epochs == epoch
                ids[start : start + _PIECE][of_epoch] = self._in_epoch(epoch, offsets[of_epoch])
        return ids

    def _in_epoch(self, epoch: int, offsets: I64) -> I64:
        """Sample ids at offsets (each in [0, rows), at least one) of one epoch."""
        full = self.group_rows * self.window_groups
        short_at, lacking = self._short_group(epoch), self.groups * self.group_rows - self.rows
        short_window = short_at // self.window_groups
        # Where the offset would be if the short group were full: windows then all begin at multiples of `full`.
        after = (short_window + 1) * full - lacking
        if not lacking or offsets.max() < after:
            padded = offsets
        elif offsets.min() >= after:
            padded = offsets + lacking
        else:
            padded = np.where(offsets < after, offsets, offsets + lacking)
        windows = padded // full
        distinct, which = _numbered(windows)
        sizes = np.minimum(full, self.groups * self.group_rows - distinct * full)
        sizes = sizes - np.where(distinct == short_window, lacking, 0)
        keys = _keys(self.seed, epoch, 2, distinct.astype(np.uint64))
        rows = _permuted(sizes, keys, which, padded - windows * full)
        # Rows behind the short group's end skip the rows that it lacks.
        end_of_short = (short_at - short_window * self.window_groups + 1) * self.group_rows - lacking
        if lacking and distinct[0] <= short_window <= distinct[-1]:
            rows += np.where((windows == short_window) & (rows >= end_of_short), lacking, 0)
        places = rows // self.group_rows
        rows -= places * self.group_rows
        places += windows * self.window_groups
        return self._group_at(epoch, places) * self.group_rows + rows

    def _group_at(self, epoch: int, places: I64) -> I64:
        """Group at each place of the epoch's order of groups."""
        key = int(_keys(self.seed, epoch, 1, _words(0))[0])
        if self.groups <= _ORDERED:
            return _order(self.groups, key).take(places, mode="wrap")
        distinct, which = _numbered(places)
        return permute_tabled(self.groups, _words(key), None, distinct)[which]

    def _short_group(self, epoch: int) -> int:
        """Place of the last group, which may be short, in the epoch's order."""
        return _undone(self.groups, int(_keys(self.seed, epoch, 1, _words(0))[0]), self.groups - 1)


@lru_cache(4)
def _order(size: int, key: int) -> I64:
    """The whole of one bijection: not to be changed."""
    return permute_tabled(size, _words(key), None, np.arange(size))


_undone = lru_cache(64)(unpermute)  # the same for every piece of an epoch


def _numbered(values: I64) -> tuple[I64, I64]:
    """(ascending values, among them those that occur; index among them of each value)."""
    first, last = int(values.min()), int(values.max())
    if last - first < len(values):
        return np.arange(first, last + 1), values - first
    distinct, which = np.unique(values, return_inverse=True)
    return distinct, which


def _permuted(sizes: I64, keys: U64, which: I64, x: I64) -> I64:
    """feistel(sizes[w], keys[w], x[i]) with w = which[i] for each i. There are two or three different sizes."""
    if (sizes == sizes[0]).all():
        return permute_tabled(int(sizes[0]), keys, which if len(keys) > 1 else None, x)
    result = np.empty_like(x)
    for size in np.unique(sizes).tolist():
        own = np.flatnonzero(sizes == size)
        rank = np.full(len(sizes), -1, np.int64)
        rank[own] = np.arange(len(own))
        chosen = rank[which] >= 0
        result[chosen] = permute_tabled(size, keys[own], rank[which[chosen]], x[chosen])
    return result


def plan_fingerprint(plan: PlanSpec) -> str:
    """As manifests hold it: sha256 of the canonical JSON of format and parameters."""
    return sha256_text(canonical({"format": "killpoint.plan/1", **asdict(plan)}))
