"""`killpoint diff` on real runs: equal ones are equal, and what was done to one of them is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from reseal import reseal
from run_kit import kill, last_parts

from chaos.diff.command import diff
from chaos.run import Outcome
from storage.digests import bulk_digest
from storage.sealed import seal, unseal
from storage.shard import parse_shard
from trainers.parts import part_digests

SMALL = {"global_batch": 8, "microbatches": 2, "steps": 8, "save_every": 3, "standbys": 0}


def test_a_killed_run_and_its_twin_differ_in_nothing(original: Path) -> None:
    result = diff(str(original / "twin"), str(original))
    report = result.report
    assert (result.exit_status, report["problems"]) == (0, []), report
    assert report["b"]["attempts"] == 3
    assert report["compared"]["steps"] == (1, 20)
    assert report["compared"]["records"] == report["b"]["records"] > 40  # of two ranks, some updates done again
    assert report["compared"]["starts"] == 6
    assert {"path", "pids"} <= report["metadata"].keys()


def test_the_same_seed_differs_in_nothing_and_another_one_is_named(run: Any) -> None:
    a, b, c = (run(name=n, seed=s, **SMALL).folder for n, s in (("a", 5), ("b", 5), ("c", 6)))
    same = diff(str(a), str(b))
    assert last_parts(a) == last_parts(b) != last_parts(c)
    assert (same.exit_status, same.report["compared"]["records"]) == (0, 16), same.report
    assert diff(f"{a}:s00000008-a0000", f"{b}:s00000008-a0000").exit_status == 0
    other = diff(str(a), str(c))
    first = other.report["first"]
    assert other.exit_status == 1
    assert (first["step"], first["where"], first["changed_update"]) == (0, "restored", 1)
    assert first["causes"][0][0]["kind"] == "another start"
    assert other.report["settings"]["seed"] == ["5", "6"]
    sizes = {p["part"]: p["items"][0]["magnitude"] for p in other.report["magnitude"]["parts"]}
    assert sizes["model"] > 0
    assert "sample ids" in {difference["part"] for difference in first["changes"]}


def altered(folder: Path) -> None:
    """Every moment of Adam in the only checkpoint becomes zero; all digests are made to fit."""
    store = folder / "store"
    (path,) = (store / "manifests").glob("*.json")
    body, _digest = unseal(path.read_bytes(), path.name)
    text = ""
    for record in (each for each in body["files"] if each["kind"] == "shard"):
        data = bytearray((store / record["path"]).read_bytes())
        shard = parse_shard(data, record["path"])
        for name, view in shard.tensors.items():
            if name.startswith("optimizer/") and not name.endswith("/step"):
                np.frombuffer(view.data, np.uint8)[:] = 0
                body["tensors"][name] = bulk_digest(view.data)
        text = shard.metadata["part.optimizer"]
        (store / record["path"]).write_bytes(data)
    body["parts"] |= part_digests(["optimizer"], body["tensors"], {"optimizer": text})
    path.write_bytes(seal(body)[0])
    reseal(store)


def test_a_restored_checkpoint_that_was_altered_is_named(run: Any, cluster: str) -> None:
    clean: Outcome = run(name="clean", **SMALL)
    death = kill("microbatch.forward", 9, rank=1)  # in step 5, once the checkpoint of step 3 is published
    death["gate"] = {"role": "rank", "rank": 1, "point": "save.done", "hit": 1}
    stopped: Outcome = run(death, name="stopped", max_attempts=1, **SMALL)
    assert "gave up" in str(stopped.failure)
    altered(stopped.folder)
    command = [sys.executable, "-m", "chaos.cli", "run", "--resume", str(stopped.folder), "--quiet", "--json"]
    resumed = subprocess.run(
        command, env={**os.environ, "RAY_ADDRESS": cluster}, capture_output=True, text=True, timeout=150, check=False
    )
    assert "failure" not in json.loads(resumed.stdout), resumed.stderr
    after: Outcome = run(name="after", **SMALL)  # who resumes a run leaves the pool of a living process alone
    assert after.verdict["verdict"] == "valid", after.failure
    result = diff(str(clean.folder), str(stopped.folder))
    first = result.report["first"]
    assert result.exit_status == 1
    assert (first["attempt"], first["step"], first["where"], first["earliest_update"]) == (1, 3, "restored", 4)
    assert [d["part"] for d in first["differences"]] == ["optimizer"]
    assert first["causes"][0][0]["kind"] == "optimizer history lost"
    assert first["changed_update"] == 4
    magnitude = result.report["magnitude"]
    assert magnitude["step"] == 3
    assert {p["part"] for p in magnitude["parts"]} == {"optimizer"}
    assert magnitude["parts"][0]["items"][0]["magnitude"] > 0
    names = (f"{clean.folder}:s00000003-a0000", f"{stopped.folder}:s00000003-a0000")
    causes = diff(*names).report["causes"]
    assert causes[0][0]["text"] == "every tensor of B's optimizer is zero: its history is lost"
