"""Epochs judged by their ids alone (a part of invariant 3), beside one dictionary of what each has held."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.audit.epochs import Epochs
from chaos.audit.evidence import I64

Pieces = list[list[tuple[int, int]]]  # of each piece, (position, sample id) in order of position


def taken(rows: int, *windows: Pieces) -> Epochs:
    epochs = Epochs(rows)
    for window in windows:
        epochs.take([columns(piece) for piece in window])
    return epochs


def columns(piece: list[tuple[int, int]]) -> tuple[I64, I64]:
    position, ids = (np.array([row[i] for row in piece], np.int64) for i in range(2))
    return position, ids


def in_order(first: int, *ids: int) -> Pieces:
    """One piece from this position on."""
    return [list(enumerate(ids, first))]


def slow(rows: int, windows: list[Pieces]) -> dict[int, str]:
    """The first fault of each epoch: the least alien of its window, or else the least that came twice."""
    held: dict[int, set[int]] = {}
    faults: dict[int, str] = {}
    for window in windows:
        by_epoch: dict[int, list[int]] = {}
        for position, sample in (row for piece in window for row in piece):
            by_epoch.setdefault(position // rows, []).append(sample)
        for epoch, ids in by_epoch.items():
            known = held.setdefault(epoch, set())
            alien = sorted(i for i in ids if i < 0) + sorted(i for i in ids if i >= rows)
            again = [i for i in range(rows) if ids.count(i) + (i in known) > 1]
            if alien:
                faults.setdefault(epoch, f"epoch {epoch} holds sample {alien[0]}, which the dataset lacks")
            elif again:
                faults.setdefault(epoch, f"epoch {epoch} holds sample {again[0]} more than once")
            known |= set(ids)
    return faults


@dataclass(frozen=True)
class Taken:
    rows: int
    windows: list[Pieces]
    end: int


@st.composite
def takings(draw: st.DrawFn) -> Taken:
    """Successive windows, each dealt out to a few pieces; some positions lack, most epochs are right."""
    rows, epochs = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    first = draw(st.integers(0, 2 * rows))
    end = first + epochs * rows
    ids = [i for epoch in range(first // rows, end // rows + 1) for i in draw(st.permutations(range(rows)))]
    held = {position: ids[position - first // rows * rows] for position in range(first, end)}
    for position in draw(st.lists(st.integers(first, end - 1), max_size=2)):
        held[position] = draw(st.integers(-2, rows + 1))
    for position in draw(st.lists(st.integers(first, end - 1), max_size=2)):
        held.pop(position, None)
    cuts = sorted({first, end, *draw(st.lists(st.integers(first, end), max_size=4))})
    windows = []
    for begin, stop in pairwise(cuts):
        pieces: Pieces = [[] for _ in range(draw(st.integers(1, 3)))]
        for position in range(begin, stop):
            if position in held:
                draw(st.sampled_from(pieces)).append((position, held[position]))
        windows.append(pieces)
    return Taken(rows, windows, end)


@settings(max_examples=50, deadline=None)
@given(takings())
def test_faults_of_any_windows_are_those_of_a_slow_count(case: Taken) -> None:
    faults = slow(case.rows, case.windows)
    epochs = taken(case.rows, *case.windows)
    for cursor in range(case.end + 2):
        told = [text for epoch, text in sorted(faults.items()) if (epoch + 1) * case.rows <= cursor]
        assert epochs.faults(cursor) == told


def test_a_sample_comes_once_in_each_epoch() -> None:
    assert taken(3, in_order(0, 2, 0, 1, 1, 2, 0), in_order(6, 0, 1, 2)).faults(9) == []


@pytest.mark.parametrize("cut", range(1, 6))
def test_windows_do_not_show(cut: int) -> None:
    ids = (0, 1, 2, 2, 1, 2)
    windows = in_order(0, *ids[:cut]), in_order(cut, *ids[cut:])
    assert taken(3, *windows).faults(6) == ["epoch 1 holds sample 2 more than once"]


def test_each_epoch_is_told_once_in_order_when_it_is_finished() -> None:
    epochs = taken(2, in_order(2, 1, 1, 5, 0, 0, 0), in_order(8, 9, 9, 0, 0))
    first, alien = "epoch 1 holds sample 1 more than once", "epoch 2 holds sample 5, which the dataset lacks"
    assert epochs.faults(3) == []
    assert epochs.faults(4) == epochs.faults(5) == [first]
    assert epochs.faults(6) == [first, alien]
    assert len(epochs.faults(12)) == 5


@pytest.mark.parametrize(
    ("ids", "alien"),
    [
        ((0, -1, 1), -1),
        ((0, 3, 1), 3),
        ((4, 3, 0), 3),
        ((5, -2, -7), -7),
        ((-100, 0, 1), -100),
        ((0, 1 << 40, 1), 1 << 40),
    ],
)
def test_a_sample_that_the_dataset_lacks(ids: tuple[int, ...], alien: int) -> None:
    assert taken(3, in_order(0, *ids)).faults(3) == [f"epoch 0 holds sample {alien}, which the dataset lacks"]


def test_the_first_and_the_last_sample_are_of_the_dataset() -> None:
    assert taken(3, in_order(0, 0), in_order(1, 2), in_order(2, 1)).faults(3) == []


def test_the_least_of_those_that_come_twice_is_told() -> None:
    words = ["epoch 0 holds sample 1 more than once"]
    assert taken(5, in_order(0, 3, 1, 1, 3, 4)).faults(5) == words
    assert taken(5, in_order(0, 3, 1, 4), in_order(3, 3, 1)).faults(5) == words
    assert taken(5, in_order(0, 3, 4, 1), in_order(3, 4, 1)).faults(5) == words


def test_pieces_lie_beside_each_other() -> None:
    assert taken(4, [[(0, 0), (3, 2)], [], [(1, 1), (2, 3)]]).faults(4) == []
    assert taken(4, [[(0, 0), (3, 2)], [(1, 1), (2, 2)]]).faults(4) == ["epoch 0 holds sample 2 more than once"]
    found = taken(2, [[(2, 0), (5, 1)], [(3, 0), (4, 1)]]).faults(6)
    assert found == [f"epoch {epoch} holds sample {sample} more than once" for epoch, sample in ((1, 0), (2, 1))]


def test_without_rows_or_pieces_there_is_nothing_to_judge() -> None:
    assert taken(0, in_order(0, 1, 1)).faults(9) == []
    assert taken(3, [], [[]], [[], []]).faults(9) == []


def test_samples_beyond_32_bits_are_told_by_their_number() -> None:
    """The memory of their marks is never touched."""
    rows, large = (1 << 31) + 1, 1 << 31
    assert taken(rows, in_order(0, large, 1, large)).faults(rows) == [f"epoch 0 holds sample {large} more than once"]
    assert taken(rows, in_order(0, large, 0, large - 1)).faults(rows) == []
