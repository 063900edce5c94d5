"""Fixtures of this package's tests; `storage_kit` beside it holds what they build with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from storage_kit import RUN

from storage.log import CommitLog
from storage.objects import LocalObjects


@pytest.fixture
def objects(tmp_path: Path) -> LocalObjects:
    return LocalObjects(tmp_path / "store")


@pytest.fixture
def log(objects: LocalObjects) -> CommitLog:
    return CommitLog(objects, RUN)
