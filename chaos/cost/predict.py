"""Redo in closed form (invariant 8): what a kill must cost, from the interval, its passage and the save. Pure.

With a save due every T updates, and g updates finished when the strike comes, the last save fell due after T·⌊g/T⌋ of
them. If it is published, g mod T updates are done again. If not, the one before it is restored, T further back: a save
that falls due waits for the one in flight, so that one is published, except when the last one has not been staged yet;
this needs g = T·⌊g/T⌋. So redo is g mod T + T·[not published] behind a gate, which says whether it is published; at a
random time it is at most 2T, whatever the save does.
"""

from __future__ import annotations

from dataclasses import dataclass

from chaos.cost.values import Expected, Recovery


@dataclass(frozen=True)
class Setting:
    """Of a run. every: T, updates between saves. steps: after which it ends."""

    every: int
    steps: int
    ranks: int
    microbatches: int
    global_batch: int


def exact(setting: Setting, finished: int, partial: int, published: bool) -> Expected:
    """A rank is killed with so many updates finished, and backward passes done of the next one.

    published: of the last save that fell due; at a gate that is a fact. Before any, the state at step 0 counts as it.
    """
    redo = finished % setting.every + (0 if published else setting.every)
    microbatches = redo * setting.microbatches + partial
    samples = redo * setting.global_batch
    restored = finished - redo
    return Expected((restored, restored), (redo, redo), (samples, samples), (microbatches, microbatches))


def at_random(setting: Setting) -> Expected:
    """A rank is killed at any time, in whatever attempt."""
    most = 2 * setting.every
    return Expected(
        (0, setting.steps), (0, most), (0, most * setting.global_batch), (0, (most + 1) * setting.microbatches)
    )


def met(expected: Expected, recovery: Recovery) -> bool:
    """Whether the recovery is as expected. Microbatches of an update that was under way are not always known."""
    found = (recovery.restored_step, recovery.redo_steps, recovery.redo_samples)
    bounds = (expected.restored_step, expected.redo_steps, expected.redo_samples)
    whole = all(got is not None and low <= got <= high for got, (low, high) in zip(found, bounds, strict=True))
    if recovery.redo_microbatches is None and not expected.exact:
        return whole
    low, high = expected.redo_microbatches
    return whole and recovery.redo_microbatches is not None and low <= recovery.redo_microbatches <= high
