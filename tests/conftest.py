"""How `pytest -n 2` shares the tests out: file by file, the long ones first. And one thread of torch for every test.

Tests marked `no_cover` walk the same lines thousands of times, which other tests walk too: tracing them costs as much
as they do and shows nothing new.

Temporary folders lie in memory where there is room for them, and go at the end: thousands of small files are what most
tests are made of, and a disk takes as long for them as the tests do. `--basetemp FOLDER` keeps them instead.
"""

from __future__ import annotations

import gc
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

RAY = "tests/integration/"  # all of it is one piece: its tests share one Ray, and two would fight for the processors
# What takes over ten seconds begins first, so that nothing long is left for one process while the other has ended.
LONG = (RAY, "tests/chaos/test_forkserver.py", "tests/chaos/test_cluster.py", "tests/labs/test_resume.py")

MEMORY = Path("/dev/shm")
ROOM_BYTES = 4 << 30  # of which the tests take half a gigabyte, and Ray what it finds


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.option.basetemp is None and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM_BYTES:
        config.option.basetemp = tempfile.mkdtemp(prefix="killpoint-tests-", dir=MEMORY)
        config.add_cleanup(lambda: shutil.rmtree(config.option.basetemp, ignore_errors=True))


class _Files(LoadFileScheduling):  # type: ignore[misc]
    """One file's tests go to one process, in their order; the pieces are begun in the order of the collection."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return RAY if file.startswith(RAY) else file


@pytest.hookimpl
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Files:
    return _Files(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # one of several processes: all have to arrive at the same order
        items.sort(key=lambda item: next((n for n, long in enumerate(LONG) if item.nodeid.startswith(long)), len(LONG)))


def pytest_runtest_setup() -> None:
    """Torch's threads wait for each other in busy loops: where processors are shared, two take ten times as long."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def pytest_collection_finish() -> None:
    """What has been imported and collected stays to the end: the garbage collector need not look at it again.

    Nor so often at the rest: it took a sixteenth of all processor time, and next to nothing here is a cycle.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
