"""Faults other than a sudden death, on a real Ray: notices, stragglers, another run's files, a store that is away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from run_kit import events, explain, invariant, kill

from chaos.run import Outcome
from storage.log import CommitLog, Publish
from storage.manifest import decode, manifest_path
from storage.objects import LocalObjects

SETTINGS = {"steps": 8, "save_every": 3}


def _published(folder: Path) -> list[str]:
    run = events(folder, "supervisor", "run")[0]["run"]
    return [e.name for e in CommitLog(LocalObjects(folder / "store"), run).read() if isinstance(e, Publish)]


def _observed(outcome: Outcome, number: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = outcome.verdict["faults"][number]["observed"]
    return found


def test_after_a_notice_the_group_saves_and_nothing_is_done_again(run) -> None:  # type: ignore[no-untyped-def]
    """In the middle of step 5, of which no save is due: it is finished, saved by all, published, and gone on from."""
    outcome = run(kill("microbatch.backward", 9, rank=1, kind="sigterm"), twin=True, **SETTINGS)
    assert outcome.verdict["verdict"] == "valid", explain(outcome)
    (recovery,) = outcome.verdict["recoveries"]
    assert (recovery["restored_step"], recovery["redo_steps"], recovery["redo_samples"]) == (5, 0, 0)
    assert _published(outcome.folder) == [f"s{s:08d}-a{a:04d}" for s, a in ((3, 0), (5, 0), (6, 1), (8, 1))]
    assert _observed(outcome)["signal"] == 15
    noticed = {(e["rank"], e["step"], e["own"]) for e in events(outcome.folder, "worker", "noticed")}
    assert noticed == {(0, 5, False), (1, 5, True)}
    assert [invariant(outcome, number) for number in (3, 4, 5, 8, 10)] == ["valid"] * 5


def test_a_notice_in_a_save_and_in_the_recovery_that_follows(run) -> None:  # type: ignore[no-untyped-def]
    """First by the thread that saves, then while the next attempt loads: there it trains one step, and is gone."""
    outcome = run(
        kill("shard.half", 1, rank=0, kind="sigterm"),
        kill("recover.loaded", 1, attempt=1, rank=1, kind="sigterm"),
        **SETTINGS,
    )
    assert outcome.verdict["verdict"] == "valid", explain(outcome)
    first, second = outcome.verdict["recoveries"]
    assert first["redo_steps"] == second["redo_steps"] == 0
    assert 4 <= first["restored_step"] <= 7  # training goes on while a save is written
    assert second["restored_step"] == first["restored_step"] + 1


def test_who_is_not_gone_when_its_grace_is_over_is_killed(run) -> None:  # type: ignore[no-untyped-def]
    """It stands at a gate that opens for nobody in time, so what it wants to save is never published."""
    held = kill("microbatch.fetched", 15, rank=0)  # never reached: the gate of a fault that does not strike
    held["gate"] = {"role": "rank", "rank": 1, "point": "microbatch.backward", "hit": 10}
    notice = {**kill("microbatch.backward", 9, rank=1, kind="sigterm"), "grace_s": 0.3}
    outcome = run(notice, held, **SETTINGS)
    assert outcome.verdict["verdict"] == "unknown"  # of the second fault, which did not strike
    assert _observed(outcome)["signal"] == 9
    (recovery,) = outcome.verdict["recoveries"]
    assert recovery["restored_step"] + recovery["redo_steps"] == 4
    assert not events(outcome.folder, "worker", "noticed")


def test_a_straggler_is_waited_for(run) -> None:  # type: ignore[no-untyped-def]
    slow = {**kill("microbatch.forward", 5, rank=1, kind="slow"), "slow": {"delay_s": 0.2, "passages": 4}}
    outcome = run(slow, **SETTINGS)
    assert outcome.verdict["verdict"] == "valid", explain(outcome)
    assert outcome.verdict["recoveries"] == []
    assert float(_observed(outcome)["how"].partition(" s in 4 passages")[0]) >= 0.8


def test_another_runs_checkpoint_is_never_taken(run) -> None:  # type: ignore[no-untyped-def]
    death = kill("microbatch.forward", 11, rank=1)  # in step 6
    death["gate"] = {"role": "rank", "rank": 1, "point": "save.done", "hit": 1}
    outcome = run(death, kill("recover.fence.after", 1, attempt=1, role="supervisor", kind="stray"), **SETTINGS)
    assert outcome.verdict["verdict"] == "valid", explain(outcome)
    path = outcome.verdict["faults"][1]["receipt"]["path"]
    assert path == "store/manifests/s00000004-a0000.json"  # newer than what is restored
    assert outcome.verdict["recoveries"][0]["restored_step"] == 3
    name = Path(path).stem
    strays = [f"ledger/{name}-r{r:04d}.arrow" for r in (0, 1)] + [f"shards/{name}-r{r:04d}.safetensors" for r in (0, 1)]
    assert set(outcome.verdict["strays"]) >= {manifest_path(name), *strays}
    own = events(outcome.folder, "supervisor", "run")[0]["run"]
    assert decode((outcome.folder / path).read_bytes(), name)[0].run != own


def test_a_store_that_is_away_for_a_while_is_asked_again(run) -> None:  # type: ignore[no-untyped-def]
    """While a shard is half written, while a manifest is, while a candidate is loaded, and while the log is written."""
    outcome = run(
        {**kill("shard.half", 1, rank=1, kind="outage"), "outage": {"operations": 3}},
        {**kill("manifest.before_write", 1, role="committer", kind="outage"), "outage": {"for_s": 0.1}},
        kill("microbatch.forward", 15, rank=1),
        {**kill("recover.joined", 1, attempt=1, rank=0, kind="outage"), "outage": {"operations": 2}},
        {**kill("recover.choose.before", 1, attempt=1, role="supervisor", kind="outage"), "outage": {"operations": 2}},
        **SETTINGS,
    )
    assert outcome.verdict["verdict"] == "valid", explain(outcome)
    assert len(outcome.verdict["recoveries"]) == 1
    counts = [int(_observed(outcome, number)["how"].split()[0]) for number in (0, 3, 4)]
    assert counts == [3, 2, 2]
    assert len(events(outcome.folder, "*", "store_failed")) > 7  # and some of the committer's


def test_a_store_that_stays_away_ends_the_run(run) -> None:  # type: ignore[no-untyped-def]
    fault = {**kill("shard.half", 1, rank=1, kind="outage"), "outage": {"for_s": 60}}
    outcome = run(fault, unavailable_deadline_s=0.5, **SETTINGS)
    assert outcome.exit_status == 2
    assert outcome.failure is not None
    assert "shards/s00000003-a0000-r0001.safetensors" in outcome.failure
    assert "Input/output error" in outcome.failure
    assert outcome.verdict["recoveries"] == []
    assert _observed(outcome)["how"].endswith("errors")
