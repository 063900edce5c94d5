"""The plan as its description reads, one position at a time in Python's integers: slow, and nothing to get wrong."""

from __future__ import annotations

M = (1 << 64) - 1


def splitmix64(x: int) -> int:
    z = x = (x + 0x9E3779B97F4A7C15) & M
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M
    return z ^ (z >> 31)


def key(seed: int, epoch: int, purpose: int, index: int) -> int:
    return splitmix64(splitmix64(splitmix64(splitmix64(seed) ^ epoch) ^ purpose) ^ index)


def feistel(n: int, k: int, x: int) -> int:
    a = next(a for a in range(1, n + 2) if a * a >= n)
    b = -(-n // a)
    y = x
    while True:
        left, right = divmod(y, b)
        for i in range(6):
            k_i = splitmix64((k + i) & M)
            if i % 2 == 0:
                left = (left + splitmix64(k_i ^ right) % a) % a
            else:
                right = (right + splitmix64(k_i ^ left) % b) % b
        y = left * b + right
        if y < n:
            return y


def sample_id(p: int, rows: int, group_rows: int, window_groups: int, seed: int) -> int:
    """Builds the windows of the epoch as lists of (group, row) and looks the position up."""
    epoch, q = divmod(p, rows)
    groups = -(-rows // group_rows)
    order = [feistel(groups, key(seed, epoch, 1, 0), j) for j in range(groups)]
    for w, start in enumerate(range(0, groups, window_groups)):
        window = [
            (group, row)
            for group in order[start : start + window_groups]
            for row in range(min(group_rows, rows - group * group_rows))
        ]
        if q < len(window):
            group, row = window[feistel(len(window), key(seed, epoch, 2, w), q)]
            return group * group_rows + row
        q -= len(window)
    raise AssertionError("beyond the epoch")
