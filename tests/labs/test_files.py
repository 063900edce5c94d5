"""What a lab writes is created once and read back only as it was written; floats keep every bit."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path

import pytest

from chaos.errors import CheckpointRefused, LabError, OutputExists
from chaos.labs.files import digest_file, new_folder, read_checkpoint, write_checkpoint, write_new


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    write_new(tmp_path / "a", b"first")
    with pytest.raises(OutputExists):
        write_new(tmp_path / "a", b"second")
    assert (tmp_path / "a").read_bytes() == b"first"
    with pytest.raises(OutputExists):
        new_folder(tmp_path, "linreg")


def test_every_bit_of_a_float_comes_back(tmp_path: Path) -> None:
    values = [0.1, -0.0, 5e-324, 1.7976931348623157e308, 1 / 3]
    write_checkpoint(tmp_path / "c.json", {"values": values})
    back = read_checkpoint(tmp_path / "c.json")[0]["values"]
    assert [value.hex() for value in back] == [value.hex() for value in values]


def test_the_digest_file_is_one_for_sha256sum(tmp_path: Path) -> None:
    digest = write_checkpoint(tmp_path / "c.json", {"step": 1})
    subprocess.run(["sha256sum", "--check", "--quiet", "c.json.sha256"], cwd=tmp_path, check=True)
    assert digest_file(tmp_path / "c.json").read_text() == f"{digest.removeprefix('sha256:')}  c.json\n"


def test_what_is_not_finite_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="not finite"):
        write_checkpoint(tmp_path / "c.json", {"loss": math.nan})
    assert not list(tmp_path.iterdir())


def test_an_edit_is_refused_even_with_a_fitting_digest_file(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "c.json", {"step": 1})
    data = (tmp_path / "c.json").read_bytes().replace(b'"step":1', b'"step":2')
    (tmp_path / "c.json").write_bytes(data)
    digest_file(tmp_path / "c.json").unlink()
    summed = subprocess.run(["sha256sum", "c.json"], cwd=tmp_path, check=True, capture_output=True).stdout
    digest_file(tmp_path / "c.json").write_bytes(summed)
    with pytest.raises(CheckpointRefused, match="does not match its digest"):
        read_checkpoint(tmp_path / "c.json")
