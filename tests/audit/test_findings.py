"""What a check says: the three values and their order, and how its sentences are put together."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.audit.findings import Case, Finding, Judgement, count, listed, microbatches, prose, span, worst

INVALID, UNKNOWN, VALID, NOT_JUDGED = Judgement.INVALID, Judgement.UNKNOWN, Judgement.VALID, Judgement.NOT_JUDGED


def test_what_is_wrong_comes_before_what_is_unsure() -> None:
    case = Case(True, ["wrong"], ["unsure"])
    assert case.finding("idle") == Finding(INVALID, "wrong; unsure")


@pytest.mark.parametrize("used", [False, True])
def test_what_is_unsure_is_unknown_whether_it_was_used_or_not(used: bool) -> None:
    assert Case(used, [], ["one", "two"]).finding("idle") == Finding(UNKNOWN, "one; two")


def test_without_faults_it_is_valid_if_there_was_anything_to_judge() -> None:
    assert Case(True).finding("idle") == Finding(VALID, "")
    assert Case().finding("idle") == Finding(NOT_JUDGED, "idle")
    assert Case().finding() == Finding(NOT_JUDGED, "")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(Judgement), max_size=5))
def test_the_worst_of_several_is_the_first_of_their_order(verdicts: list[Judgement]) -> None:
    order = [INVALID, UNKNOWN, VALID, NOT_JUDGED]
    assert worst(verdicts) == min(verdicts, key=order.index, default=NOT_JUDGED)
    assert worst(iter(verdicts)) == worst(verdicts)


def test_every_order_of_the_same_verdicts_is_judged_alike() -> None:
    assert {worst(each) for each in permutations([VALID, INVALID, UNKNOWN])} == {INVALID}


def test_six_sentences_are_told_and_the_rest_is_counted() -> None:
    sentences = [f"s{n}" for n in range(9)]
    assert prose([]) == ""
    assert prose(sentences[:1]) == "s0"
    assert prose(sentences[:6]) == "s0; s1; s2; s3; s4; s5"
    assert prose(sentences[:7]) == "s0; s1; s2; s3; s4; s5; and 1 more of the kind"
    assert prose(sentences) == "s0; s1; s2; s3; s4; s5; and 3 more of the kind"


def test_a_sentence_is_told_once_where_it_is_first() -> None:
    assert prose(["b", "a", "b", "c", "a"]) == "b; a; c"
    assert prose(["same"] * 9) == "same"


@pytest.mark.parametrize(
    ("items", "text"), [([], ""), (["a"], "a"), ([1, 2], "1 and 2"), (["a", "b", "c"], "a, b and c"),
                        ("abcd", "a, b, c and d")]
)  # fmt: skip
def test_a_list_in_words(items: list[object], text: str) -> None:
    assert listed(items) == listed(iter(items)) == text


def test_spans_and_numbers_in_words() -> None:
    assert (span(7, 7), span(7, 9), span(0, 1)) == ("7", "7–9", "0–1")
    assert [count(n, "sample") for n in (0, 1, 2)] == ["0 samples", "1 sample", "2 samples"]
    assert [microbatches(n) for n in (0, 1, 2)] == ["0 microbatches", "1 microbatch", "2 microbatches"]
