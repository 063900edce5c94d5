"""Where the built-in workloads keep the Parquet shards that they write on first use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trainers.dataset import write_shards


def cached_dataset(
    name: str, columns: Callable[[], dict[str, npt.NDArray[np.generic]]], *, files: int, group_rows: int
) -> Path:
    """The folder `name` below $XDG_CACHE_HOME/killpoint/datasets, written from `columns()` if it is not there."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "killpoint" / "datasets" / name
    if not folder.is_dir():
        write_shards(folder, columns(), files=files, group_rows=group_rows)
    return folder
