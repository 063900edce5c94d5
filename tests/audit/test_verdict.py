"""The whole auditor on whole runs: what is valid, what the verdict's JSON has, what it costs."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from audit_files import bodies
from simulated_run import F0, F1, Settings, Simulation, two_kills

from chaos.audit import audit_run
from chaos.audit import verdict as verdict_module
from chaos.audit.evidence import Evidence
from chaos.audit.findings import Finding, Judgement
from chaos.audit.read_run import read_evidence
from chaos.audit.recoveries import Recovery

ROOT = Path(__file__).resolve().parents[2]


def test_a_run_with_two_kills_is_valid(run: Simulation) -> None:
    verdict = audit_run(run.folder)
    found = {i.id: (i.finding.verdict.value, i.finding.witness) for i in verdict.invariants}
    assert verdict.verdict == "valid"
    assert {n: v for n, (v, _) in found.items()} == {
        1: "valid", 2: "valid", 3: "valid", 4: "valid", 5: "not_judged", 6: "valid", 7: "valid", 8: "valid",
        9: "not_judged", 10: "valid",
    }  # fmt: skip
    assert all(witness == "" for verdict, witness in found.values() if verdict == "valid")


def test_the_json_is_the_contract(run: Simulation) -> None:
    value = json.loads(json.dumps(audit_run(run.folder).to_json()))
    assert value["verdict"] == "valid"
    assert (value["seed"], value["config_digest"], value["code_version"], value["reproduce"]) == (
        7, "sha256:c", "1", "killpoint run",
    )  # fmt: skip
    assert [i["id"] for i in value["invariants"]] == list(range(1, 11))
    assert value["invariants"][2].keys() == {"id", "name", "verdict", "witness"}
    assert value["invariants"][2]["name"] == "no gaps, no duplicates"
    first, second = value["faults"]
    assert (first["attempt"], first["role"], first["rank"], first["point"], first["hit"], first["kind"]) == (
        0, "rank", 1, "step.end", 5, "sigkill",
    )  # fmt: skip
    assert first["receipt"]["target"]["pid"] == first["observed"]["pid"]
    assert first["receipt"]["gate"]["held"] is True
    assert (second["observed"]["how"], second["observed"]["signal"]) == ("actor_died", 9)


def test_recoveries_are_measured_from_the_strike(run: Simulation) -> None:
    first, second = audit_run(run.folder).recoveries
    assert (first.attempt, first.restored_step, first.redo_steps, first.redo_samples) == (1, 4, 1, 8)
    assert (second.attempt, second.restored_step, second.redo_steps, second.redo_samples) == (2, 6, 2, 16)
    # Events are a millisecond apart: exited and closed lie between the strike and its detection.
    assert first.detect_s == 0.003
    for recovery in (first, second):
        parts = (recovery.detect_s, recovery.reacquire_s, recovery.load_s)
        assert all(part is not None and part > 0 for part in parts)
        assert recovery.first_step_s is not None
        assert recovery.first_step_s > sum(part or 0 for part in parts)


def test_each_duration_is_from_one_recorded_instant_to_the_next(run: Simulation) -> None:
    """The same from the lines themselves: strike, detection, last rank joined, last one restored, first one done."""
    told = {path.name: bodies(path) for path in (run.folder / "history").glob("*.jsonl")}

    def instants(event: str, attempt: int, least: int = 0) -> list[int]:
        return [line["t_ns"] for name, lines in told.items() for line in lines
                if (line["event"], line["attempt"]) == (event, attempt) and line.get("step", least) >= least
                and (event == "detected" or name.startswith("worker"))]  # fmt: skip

    found = audit_run(run.folder).recoveries
    for recovery, planned, restored, greatest in zip(found, (F0, F1), (4, 6), (5, 8), strict=True):
        receipt = json.loads((run.folder / "history" / "receipts" / f"{planned['id']}.json").read_bytes())["body"]
        attempt = planned["attempt"] + 1
        strike, (detected,) = receipt["t_ns"], instants("detected", attempt - 1)
        joined, loaded = max(instants("joined", attempt)), max(instants("restored", attempt))
        first, caught_up = min(instants("step", attempt)), min(instants("step", attempt, greatest))
        lengths = (detected - strike, joined - detected, loaded - joined, caught_up - loaded, first - strike)
        redo = greatest - restored
        assert recovery == Recovery(attempt, restored, *(round(each / 1e9, 6) for each in lengths), redo, redo * 8)
        assert first < caught_up or redo == 1


def test_durations_of_two_boots_are_not_computed(run: Simulation) -> None:
    evidence = read_evidence(run.folder)
    text = json.dumps(audit_run(run.folder).to_json())
    assert '"detect_s": 0.003' in text
    receipts = tuple(dataclasses.replace(r, boot="another") for r in evidence.history.receipts)
    history = dataclasses.replace(evidence.history, receipts=receipts)
    verdict = verdict_module.judge(dataclasses.replace(evidence, history=history))
    assert [(r.detect_s, r.first_step_s) for r in verdict.recoveries] == [(None, None)] * 2
    assert all(r.load_s is not None for r in verdict.recoveries)


def test_a_run_that_nothing_struck_is_valid_and_says_so(tmp_path: Path) -> None:
    sim = Simulation(tmp_path / "run")
    sim.start()
    sim.train(12)
    sim.finish()
    verdict = audit_run(sim.folder)
    assert verdict.verdict == "valid"
    assert verdict.invariant(10).verdict == "not_judged"
    assert "nothing was killed: no recovery was seen" in verdict.unseen


def test_nothing_is_unknown(tmp_path: Path) -> None:
    verdict = audit_run(tmp_path / "nowhere")
    assert verdict.verdict == "unknown"
    assert verdict.invariant(10).witness == "there is no history"
    assert (verdict.seed, verdict.faults, verdict.recoveries, verdict.strays) == (None, (), (), ())


def test_a_check_that_raises_is_unknown_and_names_the_exception(
    run: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(evidence: Evidence) -> Finding:
        raise ZeroDivisionError("of the check")

    monkeypatch.setattr(verdict_module, "CHECKS", ((1, "atomic", broken), *verdict_module.CHECKS[1:]))
    monkeypatch.setattr(verdict_module, "unseen", broken)
    verdict = audit_run(run.folder)
    assert verdict.invariant(1) == Finding(
        Judgement.UNKNOWN, "the check failed: ZeroDivisionError: of the check"
    )
    assert (verdict.verdict, verdict.unseen) == ("unknown", ())


def test_what_can_only_fail_or_not_be_judged_is_not_valid(
    run: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def idle(evidence: Evidence, *_: object) -> Finding:
        return Finding(Judgement.NOT_JUDGED)

    monkeypatch.setattr(verdict_module, "CHECKS", tuple((i, n, idle) for i, n, _ in verdict_module.CHECKS))
    monkeypatch.setattr(verdict_module.recovery_itself, "check", idle)
    monkeypatch.setattr(verdict_module.vacuous, "check", idle)
    assert audit_run(run.folder).verdict == "unknown"


def test_the_audit_writes_nothing(run: Simulation) -> None:
    def seen() -> dict[Path, int]:
        return {p: p.stat().st_mtime_ns for p in run.folder.rglob("*")}

    before = seen()
    audit_run(run.folder)
    assert seen() == before


def test_the_dataset_may_have_moved(run: Simulation, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    run.dataset.rename(moved)
    assert audit_run(run.folder).verdict == "unknown"
    assert audit_run(run.folder, moved).verdict == "valid"


def test_strays_are_listed_and_harmless(run: Simulation) -> None:
    store = run.folder / "store"
    stray = store / "shards" / "s00000010-a0001-r0000.safetensors"
    stray.write_bytes(b"cut off")
    (store / "manifests" / "s00000099-a0009.json").write_bytes(b"{")
    (store / "log" / "00000003.json.bak").write_bytes(b"?")
    verdict = audit_run(run.folder)
    assert verdict.verdict == "valid"
    assert verdict.strays == (
        "log/00000003.json.bak", "manifests/s00000099-a0009.json", "shards/s00000010-a0001-r0000.safetensors",
    )  # fmt: skip


def test_neither_ray_nor_torch_nor_the_storage_package_is_imported() -> None:
    code = (
        "import sys, chaos.audit\n"
        "print(sorted({m.partition('.')[0] for m in sys.modules} & {'ray', 'torch', 'trainers', 'storage'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_ten_checkpoints_of_fifteen_megabytes_take_less_than_a_second(tmp_path: Path) -> None:
    def big(kind: str, thing: object) -> None:
        if kind == "shard":
            assert isinstance(thing, dict)
            thing["mine"][f"model/big{thing['rank']}"] = np.zeros(15 << 17, np.float32)
            thing["shared"] |= {f"model/big{r}": np.zeros(15 << 17, np.float32) for r in range(2)}

    sim = Simulation(tmp_path / "run", Settings(steps=20, keep=20, faults=[F0]), big)
    sim.start()
    sim.train(20)
    sim.finish()
    started = time.process_time()
    verdict = audit_run(sim.folder)
    assert time.process_time() - started < 1
    assert verdict.invariant(1).verdict == "valid"
    assert verdict.invariant(4).verdict == "valid"


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_other_shapes_of_valid_runs(tmp_path: Path, ranks: int, optimizer: str) -> None:
    sim = two_kills(tmp_path / "run", ranks=ranks, optimizer=optimizer) if ranks > 1 else None
    if sim is None:
        sim = Simulation(tmp_path / "run", Settings(ranks=1, optimizer=optimizer))
        sim.start()
        sim.train(12)
        sim.finish()
    assert audit_run(sim.folder).verdict == "valid"
