"""Evidence → values: the timeline, the lineage, the ledger map, costs, and the words at the top."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from audit_files import bodies, rechain
from page_kit import on_rows, shown
from simulated_run import Edit, Simulation, fault, two_kills

from chaos.audit import audit_run
from chaos.audit.read_run import read_evidence
from chaos.audit.verdict import judge
from chaos.cost.clocks import Clocks, Offset
from chaos.page.document import document
from chaos.page.measured import read_measured
from chaos.page.pages import RunPage
from chaos.page.run_page import run_page
from chaos.page.values import Fate, Happening, Part, Standing


@pytest.fixture(scope="module")
def good(good_run: Path) -> RunPage:
    return shown(good_run)


def test_every_recorded_update_is_on_its_rank_once(good: RunPage) -> None:
    assert [lane.rank for lane in good.timeline.lanes] == [0, 1]
    for lane in good.timeline.lanes:
        done = list(zip(lane.steps.attempt.tolist(), lane.steps.first.tolist(), strict=True))
        assert done == [*((0, n) for n in range(1, 6)), *((1, n) for n in range(5, 9)), *((2, n) for n in range(7, 13))]
        assert (lane.steps.end_us >= lane.steps.start_us).all()


def test_what_was_done_again_and_what_was_lost(good: RunPage) -> None:
    steps = good.timeline.lanes[0].steps
    attempt, first = steps.attempt, steps.first
    again = [(a, n) for a, n, r in zip(attempt.tolist(), first.tolist(), steps.redone.tolist(), strict=True) if r]
    lost = [(a, n) for a, n, r in zip(attempt.tolist(), first.tolist(), steps.lost.tolist(), strict=True) if r]
    assert again == [(1, 5), (2, 7), (2, 8)]  # restored 4 after 5 were done, and 6 after 8
    assert lost == [(0, 5), (1, 7), (1, 8)]
    assert sum(cost.redo_steps or 0 for cost in good.costs) == len(again)


def test_kills_detections_and_recoveries_are_in_order(good: RunPage) -> None:
    kinds = [mark.kind for mark in good.timeline.marks if mark.kind in (Happening.KILL, Happening.DETECTED)]
    assert kinds == [Happening.KILL, Happening.DETECTED] * 2
    for number in (1, 2):
        mine = {phase.part: phase for phase in good.timeline.phases if phase.attempt == number}
        assert sorted(mine, key=lambda part: mine[part].start_us) == list(Part)
        assert mine[Part.DETECT].end_us == mine[Part.REACQUIRE].start_us
    strikes = [mark.at_us for mark in good.timeline.marks if mark.kind is Happening.KILL]
    assert strikes == [phase.start_us for phase in good.timeline.phases if phase.part is Part.DETECT]


def test_saves_that_were_never_published_say_so(good: RunPage) -> None:
    saves = good.timeline.lanes[0].saves
    never = [(a, s) for a, s, p in zip(saves.attempt.tolist(), saves.step.tolist(), saves.published_us.tolist(),
                                       strict=True)
             if p < 0]  # fmt: skip
    assert never == [(1, 8)]


def test_parts_and_whole_of_a_recovery(good: RunPage) -> None:
    for cost in good.costs:
        assert cost.first_step_s is not None
        parts = dict(cost.parts)
        caught_up_s = parts.pop("catch up")
        assert sum(parts.values()) == pytest.approx(cost.first_step_s)
        assert caught_up_s >= 0


def test_the_lineage_names_what_was_chosen(good: RunPage) -> None:
    chosen = {node.name: node.chosen_by for node in good.lineage.nodes if node.chosen_by}
    assert chosen == {"s00000004-a0000": (1,), "s00000006-a0001": (2,)}
    assert all(node.standing is Standing.LINEAGE for node in good.lineage.nodes)
    assert [start.parent for start in good.lineage.starts] == [None, "s00000004-a0000", "s00000006-a0001"]
    restarts = [edge for edge in good.lineage.edges if edge.restart]
    assert [edge.parent for edge in restarts] == [None, "s00000004-a0000", "s00000006-a0001"]


def test_a_rejected_checkpoint_has_its_reason_and_is_abandoned(tmp_path: Path) -> None:
    planned = fault(0, 0, "rank", 1, "step.end", hit=5)
    sim = Simulation(tmp_path / "run")
    sim.set.faults.append(planned)
    sim.start()
    sim.train(5)
    sim.kill(planned)
    sim.recover(reject=1, reason="shard has another digest")
    sim.train(sim.set.steps)
    sim.finish()
    node = next(node for node in shown(sim.folder).lineage.nodes if node.rejected_by)
    assert (node.name, node.rejected_by, node.standing) == (
        "s00000004-a0000", ((1, "shard has another digest"),), Standing.ABANDONED,
    )  # fmt: skip


def test_a_whole_ledger_has_no_fault(good: RunPage) -> None:
    assert good.ledger.faults == ()
    assert good.ledger.counts[Fate.ONCE] == 96 == good.ledger.updates * good.ledger.batch
    assert [(block.first, block.last, block.attempt) for block in good.ledger.blocks] == [
        (0, 1, 0), (2, 3, 0), (4, 5, 1), (6, 7, 2), (8, 9, 2), (10, 11, 2),
    ]  # fmt: skip


def _wrong_sample(kind: str, thing: object) -> None:
    if (
        kind == "rows"
        and isinstance(thing, dict)
        and (thing["attempt"], int(thing["step"][0]), thing["rank"]) == (2, 9, 1)
    ):
        for name in ("sample_id", "content"):  # whole samples, in another order than the plan's
            thing[name] = thing[name][::-1].copy()


@pytest.mark.parametrize(
    ("edit", "fate", "where", "words"),
    [
        (on_rows(1, 5, 0, [0, 3]), Fate.GAP, (5, 5, 1, 2), "step 5, positions 41–42: 2 samples never applied"),
        (
            on_rows(1, 5, 1, [0, 1, 1, 2, 3]),
            Fate.REPEATED,
            (5, 5, 5, 5),
            "step 5, position 45: 1 sample applied 2 times",
        ),
        (_wrong_sample, Fate.WRONG, (9, 9, 4, 7), "step 9, positions 76–79: 4 samples applied with another sample"),
    ],
)
def test_each_fault_is_a_rectangle_where_it_is(
    tmp_path: Path, edit: Edit, fate: Fate, where: tuple[int, int, int, int], words: str
) -> None:
    page = shown(two_kills(tmp_path / "run", edit).folder)
    assert page.verdict == "invalid"
    (found,) = page.ledger.faults
    assert (found.fate, (found.first, found.last, found.low, found.high)) == (fate, where)
    assert found.words.startswith(words)
    assert sum(page.ledger.counts.values()) == 96


def test_a_ledger_that_is_lost_is_unknown_and_no_gap(tmp_path: Path) -> None:
    folder = two_kills(tmp_path / "run").folder
    next((folder / "store" / "ledger").glob("s00000006-a0001-r0001*")).unlink()
    page = shown(folder)
    assert {fault.fate for fault in page.ledger.faults} == {Fate.UNKNOWN}
    assert page.ledger.counts[Fate.UNKNOWN] == 8  # both steps of the save, rank 1's four places each


def test_the_worse_of_two_verdicts_is_shown_and_the_other_named(tmp_path: Path) -> None:
    folder = two_kills(tmp_path / "run").folder
    said = audit_run(folder).to_json()
    (folder / "verdict.json").write_text(json.dumps({**said, "verdict": "unknown"}))
    page = shown(folder)
    assert page.verdict == "unknown"
    assert "verdict.json says unknown" in page.sentences[-1]


def test_of_a_run_whose_store_was_removed_the_recorded_verdict_is_shown(tmp_path: Path) -> None:
    folder = two_kills(tmp_path / "run").folder
    (folder / "verdict.json").write_text(json.dumps(audit_run(folder).to_json()))
    shutil.rmtree(folder / "store")
    page = shown(folder)
    assert page.verdict == "valid"
    assert page.sentences[-1].startswith("Its store is gone")
    assert {each.verdict for each in page.invariants} == {"valid", "not_judged"}


NO_VERDICT = ["", "[]", "7", '{"verdict": "valid"}', '{"verdict": 1, "invariants": [], "faults": [], "unseen": []}']


@pytest.mark.parametrize("text", NO_VERDICT)
def test_a_verdict_that_is_none_is_not_believed(tmp_path: Path, text: str) -> None:
    folder = two_kills(tmp_path / "run").folder
    (folder / "verdict.json").write_text(text)
    shutil.rmtree(folder / "store")
    assert shown(folder).verdict == "invalid"  # its history says that there was one


def test_measurements_that_are_no_numbers_are_none(tmp_path: Path) -> None:
    folder = two_kills(tmp_path / "run").folder
    for path in (folder / "history").glob("worker-*.jsonl"):
        lines = bodies(path)
        for body in lines:
            if body["event"] == "step":
                body |= {"wait_s": "long", "queue_depth": None, "microbatch_s": [0.01, 1e300]}
        rechain(path, lines)
    page = shown(folder)
    assert page.waiting == ()
    for lane in page.timeline.lanes:
        assert len(lane.steps) == 15
        assert (lane.steps.wait_us == -1).all()
        assert not len(lane.microbatches.at_us)


def test_microbatches_and_input_as_they_were_recorded(tmp_path: Path) -> None:
    folder = two_kills(tmp_path / "run").folder
    for path in (folder / "history").glob("worker-*.jsonl"):
        lines = bodies(path)
        for body in lines:
            if body["event"] == "step":
                body |= {"wait_s": 0.0005, "train_s": 0.001, "queue_depth": 3, "microbatch_s": [0.0004, 0.001]}
        rechain(path, lines)
    page = shown(folder)
    lane = page.timeline.lanes[1]
    assert (lane.steps.end_us - lane.steps.start_us <= 1500).all()
    assert (lane.steps.wait_us == 500).all()
    assert len(lane.microbatches.at_us) == 2 * len(lane.steps)
    offsets = lane.microbatches.at_us - lane.steps.start_us[lane.microbatches.stretch]
    assert np.unique(offsets).tolist() == [400, 1000]
    assert {each.depth for each in page.waiting} == {3.0}
    assert sum(each.updates for each in page.waiting) == sum(len(each.steps) for each in page.timeline.lanes)


def test_instants_of_two_boots_are_drawn_one_after_the_other(tmp_path: Path) -> None:
    folder = two_kills(tmp_path / "run").folder
    _another_host(folder, 900_000_000)
    page = shown(folder)
    assert (page.timeline.axes, page.timeline.uncertainty_s) == (2, 0)
    assert all((lane.steps.start_us >= 0).all() for lane in page.timeline.lanes)
    assert all((lane.steps.end_us <= page.timeline.end_us).all() for lane in page.timeline.lanes)


def _another_host(folder: Path, behind_ns: int) -> None:
    """One worker of the second attempt was on a host whose clock is so much behind."""
    path = next(path for path in (folder / "history").glob("worker-*.jsonl") if bodies(path)[1]["attempt"] == 1)
    lines = bodies(path)
    lines[0]["boot"] = "another"
    for body in lines:
        body["t_ns"] -= behind_ns
    rechain(path, lines)


def test_hosts_whose_clocks_compare_share_an_axis_and_the_page_says_how_well(good_run: Path, tmp_path: Path) -> None:
    folder = two_kills(tmp_path / "run").folder
    reference = next(iter(read_evidence(folder).history.files.values())).opened
    assert reference is not None
    _another_host(folder, 900_000_000)
    offsets = {reference.boot: Offset(0, 0), "another": Offset(-900_000_000, 2_100_000)}
    measured = read_measured(folder / "history", read_evidence(folder).history)
    verdict = judge(evidence := read_evidence(folder))
    page = run_page(evidence, measured, verdict, None, (), str(folder), Clocks(reference.boot, offsets))
    assert (page.timeline.axes, page.timeline.uncertainty_s) == (1, pytest.approx(0.0021))
    one_host = shown(good_run).timeline
    assert page.timeline.end_us == one_host.end_us
    for lane, same in zip(page.timeline.lanes, one_host.lanes, strict=True):
        assert lane.steps.end_us.tolist() == same.steps.end_us.tolist()
    drawn = document([page])
    assert "known to ±2.1 ms" in drawn
    assert "clocks do not compare" not in drawn


def test_every_number_says_what_it_is_of(good: RunPage) -> None:
    assert {each.label for each in good.numbers} == {"Kill to first new step", "Trained again", "Updates done",
                                                     "Checkpoints published"}  # fmt: skip
    assert all(each.observations for each in good.numbers)
    assert next(each for each in good.numbers if each.label == "Trained again").value == "3"
