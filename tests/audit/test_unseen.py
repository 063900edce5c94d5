"""What a run could not have seen: each sentence where it belongs, and not where it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from evidence_by_hand import begun, chose, evidence, fence, manifest_seen, published, receipt, recorded, step
from simulated_run import F0, Settings, Simulation, fault, two_kills

from chaos.audit import audit_run
from chaos.audit.events import NonFinite, Published, SaveDue, SaveStaged
from chaos.audit.evidence import Candidate, Entry, History, HistoryFile, Log, ManifestSeen, Retire, TwinSeen
from chaos.audit.facts import GateHeld, PlanSpec
from chaos.audit.formats import part_digest
from chaos.audit.unseen import unseen as of_evidence

NO_TEXT = part_digest("scheduler", {}, "null")
NO_TENSORS = part_digest("buffers", {}, None)


def unseen(folder: Path) -> str:
    return "\n".join(audit_run(folder).unseen)


ALWAYS = "the trajectory was not compared"
OF_ANY_KILL = (
    "what a killed process recorded last",
    "the steps of all candidates had the same number of digits",
    "no restart began inside a step",
    "no writer of a fenced attempt came back",
    "no save fell due while another was in flight",
)


def trained(tmp_path: Path, settings: Settings, edit: Any = lambda kind, thing: None) -> str:
    sim = Simulation(tmp_path / "run", settings, edit)
    sim.start()
    sim.train(settings.steps)
    sim.finish()
    return unseen(sim.folder)


def test_a_rich_run_leaves_little_unseen(tmp_path: Path) -> None:
    """Four ranks, a rejection, a retirement, a kill in recovery, a gate, a scaler, an epoch after a restart."""
    damage = fault(5, 0, "store", None, None, kind="damage", hit=None)  # type: ignore[arg-type]
    second = fault(1, 1, "rank", 0, "recover.restored")

    def scaled(kind: str, thing: Any) -> None:
        if kind == "shard":
            thing["texts"]["scaler"] = '{"scale": 2}'

    settings = Settings(ranks=4, faults=[F0, second, damage], skips=(2,), skips_for="scaled_gradient")
    sim = Simulation(tmp_path / "run", settings, scaled)
    sim.start()
    sim.train(5)
    sim.train(6, publish=False)
    sim.damage("shards/s00000004-a0000-r0001.safetensors", damage)
    sim.kill(F0)
    sim.recover(reject=1)
    sim.kill(second)
    sim.recover(take=0)
    sim.train(12)
    sim.finish()
    left = unseen(sim.folder).splitlines()
    assert [next((words for words in (ALWAYS, *OF_ANY_KILL) if words in line), line) for line in left] == [
        ALWAYS, *OF_ANY_KILL,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"constant_rate": True}, "the learning rate was constant: a lost scheduler is invisible here"),
        ({"scheduler": False}, "there was no scheduler"),
        ({}, "there was no gradient scaler"),
        ({"buffers": False}, "the model had no buffers"),
        ({"optimizer": "sgd"}, "the optimizer had no state"),
        ({"generators_advance": False}, "Python's and NumPy's and torch's generator never advanced"),
        ({"microbatches": 1}, "a step was one microbatch"),
        ({"rows": 96}, "the run stayed within one epoch"),
        ({}, "nothing was killed: no recovery was seen"),
        ({"ranks": 1}, "there were only one rank"),
        ({"ranks": 2}, "there were only two ranks"),
        ({"keep": 99}, "nothing was ever retired"),
    ],
)
def test_what_a_setting_hides(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    assert words in trained(tmp_path, Settings(**settings))


def test_a_scaler_that_never_skipped(tmp_path: Path) -> None:
    def scaled(kind: str, thing: Any) -> None:
        if kind == "shard":
            thing["texts"]["scaler"] = '{"scale": 2}'

    text = trained(tmp_path, Settings(skips=(3,)), scaled)  # skipped, but not for an overflow of the scaler
    assert "no scaled gradient overflowed: a lost gradient scaler may be invisible here" in text
    assert "there was no gradient scaler" not in text


@pytest.mark.parametrize(("step", "told"), [(3, False), (5, True)])
def test_a_scaler_that_overflowed_before_no_restart(tmp_path: Path, step: int, told: bool) -> None:
    """The only restart is from step 4."""
    sim = Simulation(
        tmp_path / "run", Settings(faults=[F0], skips=(step,), skips_for="scaled_gradient"),
        lambda kind, thing: thing["texts"].update(scaler='{"scale": 2}') if kind == "shard" else None,
    )  # fmt: skip
    sim.start()
    sim.train(5)
    sim.kill(F0)
    sim.recover()
    sim.train(12)
    sim.finish()
    assert ("overflowed before a restart: a scaler that came back as new" in unseen(sim.folder)) == told


@pytest.mark.parametrize(("rows", "told"), [(50, False), (33, True)])
def test_an_epoch_that_begins_after_a_restart(tmp_path: Path, rows: int, told: bool) -> None:
    """The restart is at position 48 of 64."""
    sim = Simulation(tmp_path / "run", Settings(rows=rows, steps=8, faults=[F0]))
    sim.start()
    sim.train(7)
    sim.kill(F0)
    sim.recover()
    sim.train(8)
    sim.finish()
    assert ("no epoch began after a restart" in unseen(sim.folder)) == told


def test_what_a_simple_kill_leaves_unseen(tmp_path: Path) -> None:
    plain = {**F0, "gate": None}
    sim = Simulation(tmp_path / "run", Settings(faults=[plain]))
    sim.start()
    sim.train(5)
    sim.kill(plain)
    sim.recover()
    sim.train(12)
    sim.finish()
    text = unseen(sim.folder)
    for words in (
        "no save was in flight at any kill", "nothing was killed during a recovery", "no gate was used",
        "no candidate was ever rejected",
    ):  # fmt: skip
        assert words in text


def test_a_save_in_flight_at_a_kill(tmp_path: Path) -> None:
    assert "no save was in flight" not in unseen(two_kills(tmp_path / "run").folder)


def test_nothing_published(tmp_path: Path) -> None:
    sim = Simulation(tmp_path / "run")
    sim.start()
    sim.train(1)
    sim.finish(finished=False)
    assert "the learning rate was constant" in unseen(sim.folder)


def test_nothing_trained(tmp_path: Path) -> None:
    sim = Simulation(tmp_path / "run", Settings(constant_rate=True))
    sim.start()
    sim.finish(finished=False)
    assert "no update was done" in unseen(sim.folder)
    assert "the learning rate was constant" not in unseen(sim.folder)


def test_a_recovery_from_what_nobody_planned(tmp_path: Path) -> None:
    sim = Simulation(tmp_path / "run")
    sim.start()
    sim.train(5)
    sim.recover()
    sim.train(12)
    sim.finish()
    assert "no planned fault struck: the recoveries here answer failures that nobody planned" in unseen(sim.folder)
    assert "no recovery was seen" not in unseen(sim.folder)


@pytest.mark.parametrize(("keep", "told"), [(1, True), (2, False)])
def test_candidates_of_steps_with_more_and_with_fewer_digits(tmp_path: Path, keep: int, told: bool) -> None:
    """The restart is at step 11: from 10, before which there is 8 unless only one checkpoint is kept."""
    sim = Simulation(tmp_path / "run", Settings(faults=[F0], keep=keep))
    sim.start()
    sim.train(11)
    sim.kill(F0)
    sim.recover()
    sim.train(12)
    sim.finish()
    text = unseen(sim.folder)
    assert ("no restart had several candidates" in text) == told
    assert "had the same number of digits" not in text


def test_a_committer_that_was_fenced_off(tmp_path: Path) -> None:
    sim = Simulation(tmp_path / "run", Settings(faults=[F0]))
    sim.start()
    sim.train(5)
    sim.kill(F0)
    sim.recover()
    late = sim.of("committer").history
    sim.say(late, "fenced_off", 0, name="s00000006-a0000", detail="attempt 1 is in force")
    sim.train(12)
    sim.finish()
    assert "no writer of a fenced attempt came back" not in unseen(sim.folder)


# -- from evidence in memory


def holds(words: str, *given: Any, **named: Any) -> bool:
    """Whether one sentence, and no other, has these words."""
    found = [sentence for sentence in of_evidence(evidence(*given, **named)) if words in sentence]
    assert len(found) <= 1
    return bool(found)


PLAN = PlanSpec(48, 8, 2, 7)
TWO, FOUR, SIX = (published(seq, 0, number) for seq, number in ((1, 2), (2, 4), (3, 6)))
ATTEMPT_0: list[Entry] = [fence(0, 0), TWO, FOUR, SIX]
RESTARTED: list[Entry] = [*ATTEMPT_0, fence(4, 1), chose(5, 1, FOUR)]
TWIN = TwinSeen("twin", Log(()), {}, History({}, ()), None)


def test_of_nothing_at_all_there_is_no_more_to_say_than_that() -> None:
    assert of_evidence(evidence()) == (
        "the trajectory was not compared with an uninterrupted twin: numbers that went wrong after a restore are "
        "invisible here",
        "no update was done: nothing of the training was seen",
        "nothing was killed: no recovery was seen",
        "nothing was ever retired: that retention keeps a way back was not seen",
    )


def test_all_that_a_simple_restart_leaves_unseen_is_told_in_this_order() -> None:
    worker = recorded("worker", 1, (0, step(0, 1), 1), (0, SaveDue(0, 2), 2))
    parts = {"scheduler": NO_TEXT, "scaler": NO_TEXT, "buffers": NO_TENSORS, "rng.numpy": "n"}
    manifests = [manifest_seen(FOUR, parts)]
    found = of_evidence(
        evidence(RESTARTED, [worker], [receipt(pid=5, t_ns=3)], manifests, begun(microbatches=1), PlanSpec(96, 8, 2, 7))
    )
    words = (
        "not compared with an uninterrupted twin", "the learning rate was constant", "there was no scheduler",
        "there was no gradient scaler", "the model had no buffers", "the optimizer had no state",
        "NumPy's generator never advanced between checkpoints: a lost state of it is invisible here",
        "a step was one microbatch", "the run stayed within one epoch", "no save was in flight at any kill",
        "nothing was killed during a recovery", "no gate was used", "there were only two ranks",
        "what a killed process recorded last", "had the same number of digits", "no restart began inside a step",
        "no writer of a fenced attempt came back", "no save fell due while another", "no candidate was ever rejected",
        "nothing was ever retired",
    )  # fmt: skip
    assert [each in sentence for each, sentence in zip(words, found, strict=True)] == [True] * len(words)


@pytest.mark.parametrize(("tolerance", "told"), [(0.0, False), (0.25, True)])
def test_a_tolerance_is_told_where_there_is_a_twin(tolerance: float, told: bool) -> None:
    words = "a tolerance of 0.25 was stated"
    assert holds(words, begun=begun(tolerance=tolerance), twins=(TWIN,)) == told
    assert not holds("uninterrupted twin", begun=begun(tolerance=tolerance), twins=(TWIN,))
    assert not holds(words, begun=begun(tolerance=tolerance))
    assert not holds(words, twins=(TWIN,))


@pytest.mark.parametrize(("rates", "none", "constant"), [([], True, False), (["1"], False, True),
                                                         (["1", "1"], False, True), (["1", "2"], False, False),
                                                         (["1", "2", "3"], False, False)])  # fmt: skip
def test_how_many_learning_rates_there_were(rates: list[str], none: bool, constant: bool) -> None:
    worker = recorded("worker", 1, *((0, step(0, n, lr=(rate,)), n) for n, rate in enumerate(rates, 1)))
    assert holds("no update was done", files=[worker]) == none
    assert holds("the learning rate was constant", files=[worker]) == constant


STATE = {
    "there was no scheduler": ("scheduler", NO_TEXT), "there was no gradient scaler": ("scaler", NO_TEXT),
    "the model had no buffers": ("buffers", NO_TENSORS),
}  # fmt: skip


@pytest.mark.parametrize("words", STATE)
def test_a_part_of_the_state_that_no_rank_of_the_newest_checkpoint_had(words: str) -> None:
    part, nothing = STATE[words]
    none, some = {part: nothing}, {part: "xxh3-128:0"}
    for ranks, told in (([none, none], True), ([none, some], False), ([some, none], False), ([some, some], False)):
        assert holds(words, ATTEMPT_0, manifests=[manifest_seen(SIX, *ranks)]) == told
    older = [manifest_seen(FOUR, some), manifest_seen(TWO, some)]
    assert holds(words, ATTEMPT_0, manifests=[*older, manifest_seen(SIX, none)])
    older = [manifest_seen(FOUR, none), manifest_seen(TWO, none)]
    assert not holds(words, ATTEMPT_0, manifests=[*older, manifest_seen(SIX, some)])
    assert not holds(words, ATTEMPT_0)


def test_tensors_of_an_optimizer_in_the_newest_checkpoint() -> None:
    words = "the optimizer had no state"
    none, some = {"model/optimizer/": "d"}, {"model/w": "d", "optimizer/w/step": "d"}
    for newest, older, told in ((none, some, True), (some, none, False)):
        manifests = [manifest_seen(SIX, {}, tensors=newest), manifest_seen(FOUR, {}, tensors=older)]
        assert holds(words, ATTEMPT_0, manifests=manifests) == told


def test_a_checkpoint_whose_manifest_is_not_there_does_not_count() -> None:
    scheduled = manifest_seen(FOUR, {"scheduler": "xxh3-128:0"})
    lost = ManifestSeen(scheduled.path, manifest_seen(SIX, {"scheduler": NO_TEXT}).manifest, "sha256:other")
    assert not holds("there was no scheduler", ATTEMPT_0, manifests=[scheduled, lost])


@pytest.mark.parametrize(
    ("newest", "older", "told"),
    [
        (("a", "b"), ("a", "b"), True),
        (("a", "b"), ("a", "c"), False),
        (("a", "b"), ("c", "b"), False),
        (("a", None), ("a", None), True),  # one rank has such a generator
        ((None, None), (None, None), False),  # there is none
        (("a", None), ("a", "b"), False),
    ],
)
def test_a_generator_that_stood_still(newest: tuple[Any, Any], older: tuple[Any, Any], told: bool) -> None:
    manifests = [
        manifest_seen(publish, *({} if digest is None else {"rng.cuda": digest} for digest in digests))
        for publish, digests in ((SIX, newest), (FOUR, newest), (TWO, older))
    ]
    assert holds("CUDA's generator never advanced", ATTEMPT_0, manifests=manifests) == told


def overflows(*numbers: int, what: str = "scaled_gradient") -> HistoryFile:
    return recorded("worker", 1, *((0, NonFinite(0, number, what, "skip"), number) for number in numbers))


def test_a_scaler_is_seen_where_it_overflowed_before_a_restart() -> None:
    never, before = "no scaled gradient overflowed: a lost", "overflowed before a restart"
    scaled = [manifest_seen(FOUR, {"scaler": "xxh3-128:0"})]
    twice = [*RESTARTED, fence(6, 2), chose(7, 2, SIX)]
    for log, file, told in (
        (RESTARTED, overflows(), (True, False)),
        (RESTARTED, overflows(3, what="gradient"), (True, False)),
        (RESTARTED, overflows(4), (False, False)),
        (RESTARTED, overflows(5), (False, True)),
        (RESTARTED, overflows(9, 3), (False, False)),
        (RESTARTED, overflows(9, 5), (False, True)),
        (twice, overflows(5), (False, False)),
        (ATTEMPT_0, overflows(5), (False, False)),
        ([*ATTEMPT_0, chose(4, 0, None)], overflows(5), (False, False)),
    ):
        assert (holds(never, log, [file], manifests=scaled), holds(before, log, [file], manifests=scaled)) == told
    plain = [manifest_seen(FOUR, {"scaler": NO_TEXT})]
    assert not holds(never, RESTARTED, [overflows()], manifests=plain)


@pytest.mark.parametrize(("steps", "rows", "told"), [(6, 48, True), (7, 48, False), (6, 49, True), (6, 47, False)])
def test_a_run_within_one_epoch(steps: int, rows: int, told: bool) -> None:
    spec = PlanSpec(rows, 8, 2, 7)
    assert holds("stayed within one epoch", begun=begun(steps=steps), plan=spec) == told
    assert not holds("no epoch began after a restart", begun=begun(steps=steps), plan=spec)


@pytest.mark.parametrize(
    ("rows", "starts", "told"),
    [
        (48, [6], True),  # from position 48 of 96: the second epoch is the last, and has begun
        (48, [5], False),
        (48, [6, 5], False),
        (48, [6, 7], True),
        (95, [6], False),  # the last position is the first of the second epoch
        (96, [6], False),
        (33, [8], False),  # 64 of 96 is in the second of three
        (33, [9], True),
        (48, [], False),
    ],
)
def test_an_epoch_after_a_restart(rows: int, starts: list[int], told: bool) -> None:
    sources = {number: published(number, 0, number) for number in starts}
    log: list[Any] = [fence(0, 0), *sources.values()]
    for attempt, number in enumerate(starts, 1):
        log += [fence(len(log) + 20, attempt), chose(len(log) + 21, attempt, sources[number])]
    assert holds("no epoch began after a restart", log, begun=begun(), plan=PlanSpec(rows, 8, 2, 7)) == told


def test_without_a_plan_or_the_run_event_nothing_is_said_of_epochs() -> None:
    for words in ("one microbatch", "within one epoch"):
        assert not holds(words, begun=begun(microbatches=1))
        assert not holds(words, plan=PLAN)
        assert not holds(words, begun=begun(microbatches=1), plan=PlanSpec(0, 8, 2, 7))
        assert holds(words, begun=begun(microbatches=1, steps=1), plan=PLAN)
    assert not holds("one microbatch", begun=begun(microbatches=2), plan=PLAN)
    assert not holds("one microbatch", begun=begun(microbatches=0), plan=PLAN)


def test_restarts_and_kills_that_belong_together_or_not() -> None:
    unplanned, nothing = "no planned fault struck", "nothing was killed: no recovery was seen"
    unanswered, damage = "nothing was restarted: no recovery was seen", [receipt(kind="damage")]
    for log, receipts, told in (
        (RESTARTED, [], (True, False, False)),
        (RESTARTED, [receipt()], (False, False, False)),
        (RESTARTED, damage, (False, False, False)),
        (ATTEMPT_0, [], (False, True, False)),
        (ATTEMPT_0, damage, (False, True, False)),
        (ATTEMPT_0, [receipt()], (False, False, True)),
    ):
        assert tuple(holds(words, log, (), receipts) for words in (unplanned, nothing, unanswered)) == told


def test_a_recovery_that_was_interrupted() -> None:
    words = "nothing was killed during a recovery"
    assert holds(words, RESTARTED, (), [receipt()])
    assert not holds(words, RESTARTED, (), [receipt(attempt=1, point="recover.restored")])
    assert not holds(words, ATTEMPT_0, (), [receipt()])


def test_a_gate_at_any_of_the_strikes() -> None:
    words, held = "no gate was used", GateHeld("committer", None, "commit.collected", 1, True)
    assert holds(words, RESTARTED, (), [receipt(), receipt()])
    assert not holds(words, RESTARTED, (), [receipt(), receipt(gate=held)])
    assert not holds(words, RESTARTED)


def test_a_strike_at_a_data_task() -> None:
    words = "no launcher watches data tasks"
    assert holds(words, RESTARTED, (), [receipt(), receipt(role="data")])
    assert not holds(words, RESTARTED, (), [receipt()])


@pytest.mark.parametrize(("ranks", "few"), [(1, "one rank:"), (2, "two ranks:"), (3, None), (4, None)])
def test_how_few_ranks_there_were(ranks: int, few: str | None) -> None:
    assert holds("there were only", begun=begun(ranks=ranks)) == (few is not None)
    assert few is None or holds(f"there were only {few}", begun=begun(ranks=ranks))
    assert not holds("there were only")


STAGED = SaveStaged(0, 6, 1)
NAME = "s00000006-m0001-a0001"


def appeared(name: str = NAME) -> Published:
    return Published(name, 6, "d", 9)


@pytest.mark.parametrize(
    ("lines", "in_flight"),
    [
        ([], False),
        ([(1, STAGED, 10)], True),  # never published
        ([(1, STAGED, 11)], False),
        ([(1, STAGED, 9), (1, appeared(), 10)], False),
        ([(1, STAGED, 9), (1, appeared(), 11)], True),
        ([(1, STAGED, 9), (1, appeared("s00000006-a0001"), 9)], True),  # another save
        ([(1, STAGED, 9), (1, appeared("s00000006-m0001-a0000"), 9)], True),
        ([(1, STAGED, 9), (0, appeared(), 9)], True),  # not by that attempt
        ([(0, STAGED, 9)], False),
        ([(None, STAGED, 9)], False),
        ([(1, STAGED, 9), (1, appeared(), 9), (1, SaveStaged(0, 8), 10)], True),
    ],
)
def test_a_save_that_was_staged_and_not_published_when_it_struck(lines: list[Any], in_flight: bool) -> None:
    words, strike = "no save was in flight at any kill", receipt(t_ns=10, attempt=1)
    assert holds(words, RESTARTED, [recorded("worker", 1, *lines)], [strike]) != in_flight
    early = receipt(t_ns=1, attempt=1)
    assert holds(words, RESTARTED, [recorded("worker", 1, *lines)], [early, strike]) != in_flight


def test_instants_of_a_save_in_flight_are_of_the_boot_of_the_strike() -> None:
    words, strike = "no save was in flight at any kill", [receipt(t_ns=10, attempt=1)]
    staged = [(1, STAGED, 9)]
    assert holds(words, RESTARTED, [recorded("worker", 1, *staged, boot="other")], strike)
    elsewhere = recorded("committer", 1, (1, appeared(), 9), boot="other")
    assert not holds(words, RESTARTED, [recorded("worker", 1, *staged), elsewhere], strike)


def test_only_what_ends_a_process_needs_a_save_in_flight() -> None:
    assert not holds("no save was in flight", RESTARTED, (), [receipt(kind="damage")])


def note(status: str) -> Candidate:
    return Candidate("s", "d", 4, status, "")


def test_a_candidate_that_a_restart_rejected() -> None:
    words = "no candidate was ever rejected"
    taken, rejected = (note("chosen"), note("not_examined")), (note("rejected"), note("chosen"))
    first = [*ATTEMPT_0, fence(4, 1)]
    assert holds(words, [*first, chose(5, 1, FOUR, *taken)])
    assert not holds(words, [*first, chose(5, 1, FOUR, *rejected)])
    assert not holds(words, [*first, chose(5, 1, FOUR, *taken), fence(6, 2), chose(7, 2, TWO, *rejected)])
    assert not holds(words, [fence(0, 0), chose(1, 0, None)])
    assert not holds(words, first)


def test_a_retirement() -> None:
    words = "nothing was ever retired"
    assert holds(words, ATTEMPT_0)
    assert not holds(words, [*ATTEMPT_0, Retire(4, 0, (TWO.name,))])
