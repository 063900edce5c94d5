"""A run that is resumed over a dataset and a store that changed meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from run_kit import TINY, command, events

from chaos.experiment import parse_experiment
from chaos.run import Outcome, run_experiment
from trainers.events import Published


def interrupted(folder: Path) -> Outcome:
    """Ctrl-C once a few checkpoints are published, long before the end."""

    def interrupt(event: object) -> None:
        if isinstance(event, Published) and event.step >= 40:
            raise KeyboardInterrupt

    text = yaml.safe_dump({"run": {**TINY, "standbys": 0, "steps": 160, "save_every": 20, "keep": 99}})
    experiment = parse_experiment(text, folder / "experiment.yaml")
    return run_experiment(experiment, folder / "run", notify=interrupt)


def resumed(folder: Path, cluster: str) -> subprocess.CompletedProcess[str]:
    """`killpoint run --resume`, in a process of its own: a run has one history of each."""
    killpoint = Path(sys.executable).parent / "killpoint"
    return subprocess.run(
        [killpoint, "run", "--resume", folder, "--json", "--quiet"], env={**os.environ, "RAY_ADDRESS": cluster},
        capture_output=True, text=True, timeout=150, check=False,
    )


def test_a_changed_dataset_is_refused_and_damage_falls_back(
    cluster: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcome = interrupted(tmp_path)
    assert "interrupted" in str(outcome.failure)
    *_, older, newest = events(outcome.folder, "committer", "published")  # of one committer, in their order

    folder = Path(events(outcome.folder, "supervisor", "dataset")[0]["dataset"]["path"])
    shard = sorted(folder.glob("*.parquet"))[0]
    whole = shard.read_bytes()
    table = pq.read_table(shard)
    column = table.column_names[-1]
    values = table[column].combine_chunks()
    pq.write_table(table.set_column(table.num_columns - 1, column, pa.concat_arrays([values[1:], values[:1]])), shard)
    try:
        refused = command(capfd, "run", "--resume", outcome.folder, "--json", "--quiet")
    finally:
        shard.write_bytes(whole)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "dataset" in refused.stderr
    assert "Traceback" not in refused.stderr

    damaged = outcome.folder / "store" / "shards" / f"{newest['name']}-r0001.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-9] + b"\xffdamaged!")
    again = resumed(outcome.folder, cluster)
    verdict = json.loads(again.stdout)
    invariants = {each["id"]: each for each in verdict["invariants"]}
    assert events(outcome.folder, "supervisor", "finished"), verdict
    chosen = {event["attempt"]: event["name"] for event in events(outcome.folder, "supervisor", "chosen")}
    assert chosen[max(chosen)] == older["name"]
    assert invariants[2]["verdict"] == "valid", invariants[2]
    assert (again.returncode, invariants[1]["verdict"]) == (1, "invalid")  # nothing announced this damage
    assert damaged.name in invariants[1]["witness"]
