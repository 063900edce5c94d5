"""What an event says that does not name everything: its line is of the boundary of a step."""

from __future__ import annotations

from chaos.audit.events import KINDS, Closed, Previous, Restored, SaveDue, SaveStaged, StepDone


def test_without_a_microbatch_it_is_the_boundary_of_a_step() -> None:
    assert Restored(1, None, None, 4, 32, {}, {}).microbatch == 0
    assert (SaveDue(1, 4), SaveStaged(1, 4)) == (SaveDue(1, 4, 0, None), SaveStaged(1, 4, 0))


def test_what_else_may_be_left_out() -> None:
    assert StepDone(0, 1, "", (), "", {}, 0, "", False).train_s == 0.0
    assert (Closed().heads, Previous("f", 1, 10).head) == ((), None)


def test_every_role_opens_and_closes_its_history_and_says_nothing_that_is_anothers() -> None:
    assert KINDS.keys() == {"supervisor", "worker", "committer", "launcher"}
    own = [kinds.keys() - {"opened", "closed", "store_failed"} for kinds in KINDS.values()]
    assert all(len(kinds) == len(names) + 3 for kinds, names in zip(KINDS.values(), own, strict=True))
    assert sum(map(len, own)) == len(set().union(*own))
