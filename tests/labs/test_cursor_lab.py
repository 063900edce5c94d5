"""What `lab cursor` takes for the published figures, without a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chaos.labs.cursor_cases import Blamed, Case, CursorLab, MidAccumulation
from chaos.labs.cursor_ledger import Applied

GAP = Blamed(3, "no gaps, no duplicates", "never applied")
RIGHT = Case("right", 10, 80, 10, 10, (), (), (), (), "valid", (), "right", ())
AHEAD = replace(RIGHT, name="prefetched", cursor=13, cursor_samples=104, next_batch=13, lost_batches=(10, 11, 12),
                verdict="invalid", blamed=(GAP,))
BEHIND = replace(RIGHT, name="older", cursor=8, cursor_samples=64, next_batch=8, twice_batches=(8, 9),
                 verdict="invalid", blamed=(GAP,))
MIDDLE = MidAccumulation("microbatch.backward", 10, 0, (1, 2, 3, 4, 5, 6), (10, 1))


def lab(*cases: Case, middle: MidAccumulation = MIDDLE) -> CursorLab:
    return CursorLab(10, 3, cases, middle)


def test_the_published_figures_pass() -> None:
    assert lab(RIGHT, AHEAD, BEHIND).passed


@pytest.mark.parametrize(
    "case",
    [
        replace(RIGHT, restored_step=9),
        replace(RIGHT, cursor=13, cursor_samples=104),
        replace(RIGHT, verdict="invalid", blamed=(GAP,)),
        replace(RIGHT, twice_batches=(9,)),
        replace(AHEAD, lost_batches=(10, 11)),
        replace(AHEAD, verdict="valid", blamed=()),
        replace(AHEAD, blamed=(replace(GAP, id=4),)),
        replace(AHEAD, next_batch=10),
        replace(BEHIND, twice_batches=()),
        replace(BEHIND, lost_batches=(10,)),
    ],
)
def test_anything_else_does_not(case: Case) -> None:
    assert not lab(case).passed


@pytest.mark.parametrize(
    "middle",
    [
        replace(MIDDLE, restored_step=5),
        replace(MIDDLE, redone_updates=1),
        replace(MIDDLE, redone_by=None),
        replace(MIDDLE, redone_by=(10, 0)),
        replace(MIDDLE, partial_samples=(1, 2, 3, 4)),
    ],
)
def test_partial_work_that_is_not_redone_does_not(middle: MidAccumulation) -> None:
    assert not lab(RIGHT, AHEAD, BEHIND, middle=middle).passed


def test_gaps_and_repeats_are_of_what_was_applied() -> None:
    applied = Applied((), {0: 1, 1: 2, 4: 1, 5: 3}, {})
    assert applied.never() == [2, 3]
    assert applied.repeated() == [1, 5]
