"""A checkpoint of a real run, exported: loaded where it lies by a fresh process, refused when a byte of it changes."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from chaos.errors import ExportFailed, NotARun, OutputExists
from chaos.export import export
from storage.errors import StorageError
from trainers.errors import TrainingError
from trainers.reload import reload


@pytest.fixture(scope="module")
def exported(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("exported") / "copy"
    done = export(original, target)
    assert done.step == 20
    assert done.proof is not None
    assert (done.proof["step"], done.proof["world"], done.proof["same_code"]) == (20, 2, True)
    return target


def test_metrics_are_one_line_a_step_of_the_lineage(exported: Path) -> None:
    lines = [json.loads(line) for line in (exported / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 21))
    assert [line["samples_seen"] for line in lines] == [16 * step for step in range(1, 21)]
    assert {line["attempt"] for line in lines} == {0, 1, 2}
    assert all(line["step_is"] for line in lines)


def test_one_changed_byte_of_any_file_is_refused(exported: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(exported, tmp_path / "copy"))
    assert reload(copy)["step"] == 20
    draw = random.Random(5)
    files = sorted(path for path in copy.rglob("*") if path.is_file())
    assert len(files) == 10
    for path in files:
        whole = path.read_bytes()
        at = draw.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises((StorageError, TrainingError)):
            reload(copy)
        path.write_bytes(whole)
    assert reload(copy)["step"] == 20


def test_the_command_says_why_and_fails(exported: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(exported, tmp_path / "copy"))
    shard = next((copy / "store" / "shards").iterdir())
    shard.write_bytes(shard.read_bytes()[:-1])
    command = [sys.executable, "-m", "trainers.reload", str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert shard.name in done.stderr
    assert "Traceback" not in done.stderr


def test_an_older_step_and_one_that_is_not_kept(original: Path, tmp_path: Path) -> None:
    assert export(original / "store", tmp_path / "older", step=18, weights=True).checkpoint.startswith("s00000018-")
    with pytest.raises(ExportFailed, match="steps that are kept: 18, 20"):
        export(original, tmp_path / "no", step=3)
    assert not (tmp_path / "no").exists()


def test_a_damaged_newest_one_is_passed_over_and_said_so(original: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(original, tmp_path / "run", ignore=shutil.ignore_patterns("gates")))
    newest = next((run / "store" / "shards").glob("s00000020-*"))
    newest.write_bytes(newest.read_bytes()[:-8] + b"changed!")
    done = export(run, tmp_path / "copy", weights=True)
    assert done.checkpoint.startswith("s00000018-")
    assert newest.name in done.rejected[0]


def test_weights_are_the_models_tensors_and_nothing_else(original: Path, tmp_path: Path) -> None:
    export(original, tmp_path / "weights", weights=True)
    tensors = load_file(tmp_path / "weights" / "model.safetensors")
    assert tensors
    assert not [name for name in tensors if name.startswith(("optimizer", "model/", "rng"))]
    with pytest.raises((StorageError, TrainingError)):
        reload(tmp_path / "weights")


def test_nothing_is_overwritten_and_a_folder_that_is_no_run_is_refused(original: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(OutputExists):
        export(original, tmp_path / "there")
    with pytest.raises(NotARun):
        export(tmp_path, tmp_path / "copy")
