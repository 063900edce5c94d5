"""What is said of what the ledger does wrong, from findings and rows in memory: each sentence as a whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from evidence_by_hand import evidence, recorded
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_reference import sample_id

from chaos.audit.coverage import Coverage, Expected, Repeat, Spot, Tally
from chaos.audit.events import Restored
from chaos.audit.evidence import HistoryFile, Segment, SegmentMeta
from chaos.audit.findings import Case
from chaos.audit.ledger_prose import Teller
from chaos.audit.plan import Plan

ROWS = 12
PLAN = Plan(ROWS, 3, 2, 7)
EXPECTED = Expected(48, 4, rows=ROWS)


def planned(position: int) -> int:
    return sample_id(position, ROWS, 3, 2, 7)


def ids(*positions: int) -> str:
    return ", ".join(str(planned(position)) for position in positions)


def segment(
    positions: Sequence[int], attempt: int = 0, samples: Sequence[int] | None = None, batch: int = 4
) -> Segment:
    position = np.array(positions, np.int64)
    sample = np.array([planned(p) for p in positions] if samples is None else samples, np.int64)
    meta = SegmentMeta("r", attempt, 0, 0, 0, 0)
    return Segment(meta, position, sample, np.zeros(len(position), np.uint64), position // batch,
                   np.zeros(len(position), np.int32))  # fmt: skip


def restored(attempt: int, step: int, name: str | None = "s") -> HistoryFile:
    lines = [(attempt, Restored(rank, name, None, step + rank, 4 * step + rank, {}, {}), 0) for rank in range(2)]
    return recorded("worker", attempt, *lines)


def told(
    coverage: Coverage,
    segments: Sequence[Segment] = (),
    files: Sequence[HistoryFile] = (),
    expected: Expected = EXPECTED,
    plan: Plan | None = PLAN,
) -> list[str]:
    case = Case()
    Teller(evidence(files=files), segments, expected, plan).tell(coverage, case)
    assert case.unsure == []
    return case.wrong


def spot(position: int, attempt: int = 0, sample: int = 99, segment: int = 0) -> Spot:
    return Spot(position // 4, position, sample, attempt, segment)


def tally(first: Spot, number: int = 1, epochs: Sequence[int] = ()) -> Tally:
    return Tally(number, first, set(epochs))


def test_of_a_ledger_without_faults_nothing_is_said() -> None:
    assert told(Coverage()) == []


def test_what_a_reader_wants_first_comes_first() -> None:
    first = spot(5)
    coverage = Coverage(
        1, Repeat(5, 5, (first, first)), 1, (7, 7), 0, tally(first), tally(first), tally(first), tally(first),
        tally(first), tally(first), 0, ["a fault of an epoch", "and another"],
    )  # fmt: skip
    words = (
        "applied twice", "never applied", "the order differs from the plan", "the content of sample 99",
        "outside of 0–47", "which is not that step's", "in another microbatch than",
        "in a ledger segment that does not", "a fault of an epoch", "and another",
    )  # fmt: skip
    found = told(coverage, [segment(range(7))])
    assert [each in sentence for each, sentence in zip(words, found, strict=True)] == [True] * len(words)


@pytest.mark.parametrize(("uncertain", "words"), [(1, "1 position cannot"), (3, "3 positions cannot")])
def test_what_lies_in_a_lost_ledger_is_unsure(uncertain: int, words: str) -> None:
    case = Case(wrong=["before"], unsure=["before"])
    Teller(evidence(), [], EXPECTED, PLAN).tell(Coverage(uncertain=uncertain), case)
    assert (case.wrong, case.unsure) == (["before"], ["before", f"{words} be judged without the lost ledger"])


# -- repeats


def repeat(first: int, last: int, spots: Sequence[Spot], repeated: int | None = None) -> Coverage:
    number = last - first + 1 if repeated is None else repeated
    return Coverage(repeated=number, first_repeat=Repeat(first, last, tuple(spots)))


def test_one_sample_that_was_applied_twice() -> None:
    (sentence,) = told(repeat(5, 5, [spot(5), spot(9, 1)]))
    assert sentence == (
        f"the sample at position 5 (ids {ids(5)}) was applied twice: at step 1 by attempt 0 and at step 2 by attempt 1"
    )


def test_samples_that_were_applied_three_times_beside_others() -> None:
    """What an attempt had restored is said once for each attempt, in their order, of its first rank."""
    spots = [spot(9, 2), spot(5, 1), spot(5, 2)]
    (sentence,) = told(repeat(5, 7, spots, 9), files=[restored(2, 3), restored(1, 2), restored(0, 1)])
    assert sentence == (
        f"samples at positions 5–7 (ids {ids(5, 6, 7)}) were applied 3 times (9 in all): at step 2 by attempt 2, at "
        "step 1 by attempt 1 and at step 1 by attempt 2; attempt 1 restored cursor 8 beside optimizer step 2; "
        "attempt 2 restored cursor 12 beside optimizer step 3"
    )


def test_a_start_from_nothing_restored_nothing() -> None:
    (sentence,) = told(repeat(5, 5, [spot(5), spot(5, 1)]), files=[restored(0, 0, None), restored(1, 2)])
    assert sentence.endswith("by attempt 1; attempt 1 restored cursor 8 beside optimizer step 2")


@pytest.mark.parametrize(("names", "told_"), [(("s", None), True), ((None, "s"), False)])
def test_what_an_attempt_restored_is_what_its_first_rank_did(names: tuple[str | None, ...], told_: bool) -> None:
    lines = [(1, Restored(rank, name, None, 2, 8, {}, {}), 0) for rank, name in enumerate(names)]
    (sentence,) = told(repeat(5, 5, [spot(5), spot(5, 1)]), files=[recorded("worker", 1, *lines)])
    assert sentence.endswith("; attempt 1 restored cursor 8 beside optimizer step 2") == told_


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (5, "the sample at position 5 (ids {5}) was"),
        (6, "samples at positions 5–6 (ids {5}, {6}) were"),
        (7, "samples at positions 5–7 (ids {5}, {6}, {7}) were"),
        (8, "samples at positions 5–8 (ids {5}, {6}, {7}, …) were"),
        (20, "samples at positions 5–20 (ids {5}, {6}, {7}, …) were"),
    ],
)
def test_the_first_ids_are_told_where_the_plan_is_known(last: int, words: str) -> None:
    for position in (5, 6, 7):
        words = words.replace(f"{{{position}}}", ids(position))
    (sentence,) = told(repeat(5, last, [spot(5), spot(5)]))
    assert sentence.startswith(f"{words} applied twice: ")
    (without,) = told(repeat(5, last, [spot(5), spot(5)]), plan=None)
    assert without.startswith("the sample at position 5 was" if last == 5 else f"samples at positions 5–{last} were")


# -- gaps


def gap(first: int, last: int, never: int | None = None) -> Coverage:
    return Coverage(never=last - first + 1 if never is None else never, first_gap=(first, last))


def test_a_gap_and_what_went_on_behind_it() -> None:
    """The row next to it, in whichever segment it is."""
    segments = [segment([4, 5, 12, 13]), segment([9, 11, 14], 1), segment([4, 10], 2), segment([4, 5], 3), segment([])]
    (sentence,) = told(gap(6, 7), segments, [restored(1, 2), restored(0, 1)])
    assert sentence == (
        f"samples at positions 6–7 (ids {ids(6, 7)}) were never applied in epoch 0: attempt 1 went on with position 9 "
        "at step 2; attempt 1 restored cursor 8 beside optimizer step 2"
    )
    (sentence,) = told(gap(6, 8), [segment([9])])
    assert sentence.endswith("never applied in epoch 0: attempt 0 went on with position 9 at step 2")


def test_a_gap_behind_which_there_is_nothing_among_several() -> None:
    (sentence,) = told(gap(6, 6, 4), [segment([4, 5, 6])])
    assert sentence == f"the sample at position 6 (ids {ids(6)}) was never applied (4 in all) in epoch 0"


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        (0, 10, " in epoch 0"),
        (0, 11, ", the whole of epoch 0"),
        (1, 11, " in epoch 0"),
        (1, 12, " in epoch 0–1"),
        (1, 23, ", the whole of epoch 1"),
        (12, 23, ", the whole of epoch 1"),
        (11, 24, ", the whole of epoch 1"),
        (12, 35, ", the whole of epoch 1–2"),
        (13, 35, ", the whole of epoch 2"),
        (13, 34, " in epoch 1–2"),
        (24, 24, " in epoch 2"),
    ],
)
def test_epochs_that_a_gap_takes_as_a_whole(first: int, last: int, words: str) -> None:
    (sentence,) = told(gap(first, last), plan=None)
    assert sentence.endswith(f"never applied{words}")
    (unknown,) = told(gap(first, last), expected=Expected(48, 4), plan=None)
    assert unknown.endswith("never applied")


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 30), st.integers(0, 30), st.lists(st.sets(st.integers(0, 40), max_size=6), max_size=3))
def test_the_next_row_is_the_least_of_all_behind_the_gap(first: int, length: int, rows: list[set[int]]) -> None:
    (sentence,) = told(gap(first, first + length), [segment(sorted(each)) for each in rows])
    behind = [position for each in rows for position in each if position > first + length]
    if behind:
        assert sentence.endswith(f"went on with position {min(behind)} at step {min(behind) // 4}")
    else:
        assert "went on" not in sentence


# -- samples


def order(first: Spot, segments: Sequence[Segment], number: int = 1, epochs: Sequence[int] = (2,)) -> str:
    (sentence,) = told(Coverage(wrong_sample=tally(first, number, epochs)), segments)
    return sentence


def test_a_sample_that_the_plan_does_not_have_there() -> None:
    sentence = order(spot(25, 1), [segment([24, 25], 1, [99, 98])])
    assert sentence == (
        "the order differs from the plan in epoch 2: at step 6 attempt 1 consumed sample 99 at position 25, the plan "
        f"says {planned(25)} (1 sample in all)"
    )
    many = order(spot(25), [segment([25], 0, [99])], 5, (4, 1, 3, 2))
    assert "in epoch 1, 2 and 3: at" in many
    assert many.endswith("(5 samples in all)")
    assert "in epoch 2 and 3: at" in order(spot(25), [segment([25], 0, [99])], 5, (3, 2))


def test_without_a_plan_no_sample_is_another() -> None:
    assert told(Coverage(wrong_sample=tally(spot(25))), plan=None) == []


def of_epoch(positions: Sequence[int], epoch: int) -> list[int]:
    return [planned(epoch * ROWS + position % ROWS) for position in positions]


@pytest.mark.parametrize(
    ("positions", "epoch", "first", "words"),
    [
        (range(24, 36), 0, 24, "; it is the order of epoch 0"),
        (range(24, 36), 1, 24, "; it is the order of epoch 1"),
        (range(24, 36), 3, 24, ""),  # of none before it
        (range(36, 48), 1, 36, ""),  # neither the first nor the one before
        (range(36, 48), 2, 36, "; it is the order of epoch 2"),
        (range(36, 48), 0, 36, "; it is the order of epoch 0"),
        (range(12, 24), 0, 12, "; it is the order of epoch 0"),
        (range(12), 1, 0, ""),
        (range(26, 34), 1, 26, ""),  # what comes in it afterwards is right again
        (range(29, 40), 1, 29, "; it is the order of epoch 1"),
    ],
)
def test_the_order_of_another_epoch(positions: range, epoch: int, first: int, words: str) -> None:
    """Looked at from the first wrong sample to the end of its epoch."""
    samples = of_epoch(positions, epoch)
    behind = [planned(p) for p in range(positions.stop, positions.stop + 4)]
    rows = segment([*positions, *range(positions.stop, positions.stop + 4)], 0, [*samples, *behind])
    assert rows.position[0] == first
    sentence = order(spot(first, segment=1), [segment([first], 0, [99]), rows], 12)
    assert sentence.endswith(f"(12 samples in all){words}")


def test_there_is_no_epoch_before_the_first() -> None:
    samples = PLAN.sample_ids(np.arange(-ROWS, 0)).tolist()
    assert order(spot(0), [segment(range(ROWS), 0, samples)], ROWS).endswith("(12 samples in all)")


def test_what_comes_before_the_first_wrong_sample_and_in_the_next_epoch_is_not_looked_at() -> None:
    before, wrong, behind = [22, 23, 24], range(25, 36), [36, 37]
    rows = segment([*before, *wrong, *behind], 0, [*map(planned, before), *of_epoch(wrong, 1), *map(planned, behind)])
    assert order(spot(25), [rows]).endswith("; it is the order of epoch 1")
    broken = rows.sample_id.copy()
    broken[-3] = 99  # the last one of the epoch
    one = segment(rows.position.tolist(), 0, broken.tolist())
    assert order(spot(25), [one]).endswith("(1 sample in all)")


@pytest.mark.parametrize(("wrong", "told_"), [(255, False), (256, True)])
def test_no_more_than_256_rows_are_looked_at_for_another_epochs_order(wrong: int, told_: bool) -> None:
    plan = Plan(400, 3, 2, 7)
    positions = np.arange(400, 800)
    samples = plan.sample_ids(positions - 400)
    samples[wrong] = 999
    rows = segment(positions.tolist(), 0, samples.tolist())
    coverage = Coverage(wrong_sample=tally(Spot(100, 400, 0, 0, 0), 400, [1]))
    (sentence,) = told(coverage, [rows], expected=Expected(800, 4, rows=400), plan=plan)
    assert sentence.endswith("; it is the order of epoch 0") == told_


# -- contents, steps, microbatches


def test_a_content_that_is_another_rows() -> None:
    for number, in_all in ((1, "1 sample"), (4, "4 samples")):
        (sentence,) = told(Coverage(wrong_content=tally(spot(25, 2), number)))
        assert sentence == (
            "the content of sample 99, consumed at step 6 by attempt 2 (position 25), is not that of the dataset's row "
            f"({in_all} in all)"
        )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("beyond", "outside of 0–47, which the lineage has applied"),
        ("wrong_step", "which is not that step's"),
        ("wrong_microbatch", "in another microbatch than the position belongs to"),
        ("outside_segment", "in a ledger segment that does not cover that step and microbatch"),
    ],
)
def test_a_row_in_a_wrong_place(name: str, words: str) -> None:
    for number, in_all in ((1, "1 row"), (3, "3 rows")):
        (sentence,) = told(Coverage(**{name: tally(Spot(3, 25, 99, 2, 0), number)}))  # type: ignore[arg-type]
        assert sentence == (
            f"step 3 of attempt 2 consumed position 25 (sample 99), {words}; step 3 has positions 12–15 "
            f"({in_all} in all)"
        )


@pytest.mark.parametrize(("partial", "more"), [(1, "1 microbatch"), (2, "2 microbatches")])
def test_what_has_been_accumulated_is_more_than_what_was_applied(partial: int, more: str) -> None:
    expected = Expected(40, 4, rows=ROWS, partial=partial)
    (sentence,) = told(Coverage(beyond=tally(Spot(3, 55, 99, 2, 0))), expected=expected)
    assert f"outside of what the lineage has applied or accumulated (0–39 and {more} more); step 3" in sentence
