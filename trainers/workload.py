"""The seam by which a workload comes in: `build(config)` returns model, optimizer, scheduler, loss and dataset.

A workload is named `bytelm`, `linreg` or `tiny` (built in), `package.module:build`, or `path/to/file.py:build`.
The folder of such a file is where its imports are looked for first, as with a script that Python runs.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from trainers.blame import described, place_of
from trainers.errors import WorkloadError
from trainers.spec import BUILT_IN

Batch = dict[str, torch.Tensor]
Loss = Callable[[torch.nn.Module, Batch], torch.Tensor]
Config = Mapping[str, Any]
_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Workload:
    """What is trained.

    `loss(model, batch)` returns one loss per sample, float[n]: the trainer forms the mean over the global batch
    itself, so ragged microbatches cannot weigh wrongly. `batch` maps content columns to tensors [n, …].
    `dataset` is a folder of Parquet shards. The optimizer must be over the model's parameters.
    """

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    loss: Loss
    dataset: Path
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None
    scaler: torch.amp.GradScaler | None = field(default=None)


def load_builder(name: str) -> Callable[[Config], Workload]:
    """Imports the build function that `name` names. Raises WorkloadError."""
    target = BUILT_IN.get(name, name)
    place, colon, attribute = target.rpartition(":")
    if not colon or not attribute:
        raise WorkloadError(f"workload {name!r}: write package.module:build, path/to/file.py:build or one of "
                            f"{', '.join(sorted(BUILT_IN))}")
    module = _import(place, name)
    builder = getattr(module, attribute, None)
    if not callable(builder):
        raise WorkloadError(f"workload {name!r}: {place} has no function {attribute!r}")
    return builder  # type: ignore[no-any-return]


def _import(place: str, name: str) -> ModuleType:
    try:
        if not place.endswith(".py"):
            return importlib.import_module(place)
        path = Path(place).resolve()
        module_name = f"killpoint_workload_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
        spec = importlib.util.spec_from_file_location(module_name, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise WorkloadError(f"workload {name!r}: there is no file {path}")
        sys.path[:] = [str(path.parent), *(entry for entry in sys.path if entry != str(path.parent))]
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        spec.loader.exec_module(module)
        return module
    except WorkloadError:
        raise
    except Exception as error:
        where = place_of(error, [Path(place).resolve()])
        raise WorkloadError(f"workload {name!r}: importing {place} failed: {described(error)} ({where})") from error


def build(name: str, config: Config) -> Workload:
    """Builds the workload and checks the seam's rules. Raises WorkloadError."""
    builder = load_builder(name)
    try:
        workload = builder(config)
    except Exception as error:
        where = place_of(error, code_files(name))
        raise WorkloadError(f"workload {name!r}: build(config) failed: {described(error)} ({where})") from error
    if not isinstance(workload, Workload):
        raise WorkloadError(f"workload {name!r}: build(config) returned {type(workload).__name__}, not a Workload")
    known = {id(p) for p in workload.model.parameters()}
    if any(id(p) not in known for group in workload.optimizer.param_groups for p in group["params"]):
        raise WorkloadError(f"workload {name!r}: the optimizer holds a parameter that is not the model's")
    if not any(p.requires_grad for p in workload.model.parameters()):
        raise WorkloadError(f"workload {name!r}: the model has no parameter with requires_grad: nothing to train")
    return workload


def code_files(name: str) -> list[Path]:
    """The source files that decide the numbers: the workload's own module first.

    For a workload in a file also what it has imported from that file's folder so far, so call it after `build`.
    """
    place = BUILT_IN.get(name, name).rpartition(":")[0]
    if place.endswith(".py"):
        path = Path(place).resolve()
        return [path, *(other for other in _imported_below(path.parent) if other != path)]
    source = getattr(_import(place, name), "__file__", None)
    return [Path(source)] if source else []


def _imported_below(folder: Path) -> list[Path]:
    """Sources of the modules imported from a folder; not what is installed there, nor this program itself."""
    sources = {module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)}
    # Some modules, torch's for one, name a file that is none.
    paths = {Path(s).resolve() for s in sources if s and os.path.isabs(s) and s.endswith(".py") and os.path.isfile(s)}
    own = tuple(_ROOT / package for package in ("chaos", "trainers", "storage"))
    below = {path for path in paths if path.is_relative_to(folder) and not any(map(path.is_relative_to, own))}
    return sorted(path for path in below if "site-packages" not in path.relative_to(folder).parts)
