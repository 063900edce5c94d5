"""Levels of detail: nothing is lost on the way from every update to a few pieces, nor on the way into the page."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np
import pytest

from chaos.page.levels import coarsest, grouped, levels
from chaos.page.payload import pack
from chaos.page.values import Microbatches, RankLane, Saves, Stretches, Timeline


def stretches(count: int, seed: int = 1) -> Stretches:
    """Of 40 to 90 ms, with pauses between some of them."""
    random = np.random.default_rng(seed)
    length = random.integers(40_000, 90_000, count)
    pause = random.integers(0, 300, count) + 800_000 * (random.random(count) < 0.01)
    end = np.cumsum(length + pause)
    number = np.arange(1, count + 1)
    marked = (random.random((2, count)) < 0.02).astype(np.int64)
    return Stretches(end - length, end, number, number, number // 500, np.ones(count, np.int64), *marked,
                     random.integers(0, 5000, count))  # fmt: skip


def timeline(count: int, ranks: int = 2) -> Timeline:
    lanes = []
    for rank in range(ranks):
        steps = stretches(count, rank)
        owner = np.repeat(np.arange(count), 2)
        at = steps.start_us[owner] + (steps.end_us - steps.start_us)[owner] * np.tile([1, 3], count) // 4
        due = steps.end_us[9::10]
        saves = Saves(due, due + 1000, due + 9000, due + 12_000, steps.last[9::10], steps.attempt[9::10])
        lanes.append(RankLane(rank, steps, saves, Microbatches(at, owner)))
    return Timeline(max(int(lane.steps.end_us[-1]) for lane in lanes), tuple(lanes), (), (), 1)


@pytest.mark.parametrize("bin_us", [1, 1000, 100_000, 3_000_000, 10**12])
def test_a_group_has_all_that_its_members_have(bin_us: int) -> None:
    steps = stretches(3000)
    found = grouped(steps, bin_us)
    for name in ("updates", "redone", "lost", "wait_us"):
        assert getattr(found, name).sum() == getattr(steps, name).sum()
    assert (found.start_us[1:] >= found.start_us[:-1]).all()
    assert found.start_us[0] == steps.start_us[0]
    assert found.end_us[-1] == steps.end_us[-1]
    assert (found.last - found.first + 1 == found.updates).all()


def test_levels_go_from_every_update_to_a_few_pieces() -> None:
    found = levels(timeline(20_000))
    assert found[0].bin_us == 0
    assert found[0].pieces == 40_000
    assert [level.pieces for level in found] == sorted((level.pieces for level in found), reverse=True)
    assert found[-1].pieces <= 2600
    assert coarsest(found, 10_000).pieces <= 10_000
    assert coarsest(found, 0) is found[-1]


def test_a_short_run_has_one_level() -> None:
    assert [level.bin_us for level in levels(timeline(50))] == [0]
    assert levels(Timeline(0, (), (), (), 0))[0].pieces == 0


def unpacked(text: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(text)))


def test_what_is_packed_comes_out_as_it_went_in() -> None:
    shown = timeline(400)
    packed = pack(shown, 10**7)
    assert packed.note == ""
    body = unpacked(packed.text)
    assert body["unit"] == 1
    for lane, (number, original) in zip(body["levels"][0]["lanes"], enumerate(shown.lanes), strict=True):
        start, length = np.array(lane["start_us"]), np.array(lane["end_us"])
        end = np.cumsum(start + length)
        assert (end == original.steps.end_us).all()
        assert (end - length == original.steps.start_us).all()
        assert (np.cumsum(lane["first"]) == original.steps.first).all()
        assert lane["wait_us"] == original.steps.wait_us.tolist()
        assert (np.cumsum(body["saves"][number]["due_us"]) == original.saves.due_us).all()
        assert body["ticks"][number]["counts"] == [2] * 400
        assert set(body["ticks"][number]["shares"]) <= {63, 191}


def test_what_does_not_fit_is_left_out_from_the_finest_on_and_the_page_says_so() -> None:
    shown = timeline(20_000)
    whole = len(pack(shown, 10**9).text)
    assert pack(shown, whole).note == ""
    without = pack(shown, whole - 1)
    assert "Microbatches are left out" in without.note
    assert len(without.text) < whole
    groups = pack(shown, len(without.text) - 1)
    assert "Steps are shown in groups" in groups.note
    assert unpacked(groups.text)["levels"][0]["bin"] > 0
    assert sum(unpacked(groups.text)["levels"][0]["lanes"][0]["updates"]) == 20_000
