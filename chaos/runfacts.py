"""What a run is made of, as its history and its report say it: code, platform, the command that repeats it."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from chaos.experiment import Experiment
from trainers.spec import VERSION, TrainingSpec, code_digest

_LIBRARIES = ("torch", "numpy", "pyarrow", "ray", "safetensors")


def code_version() -> str:
    """Release and digest of the sources that run."""
    return f"{VERSION}+{code_digest([]).removeprefix('sha256:')[:12]}"


def reproduce_command(experiment: Experiment) -> str:
    """The one command that runs the same experiment again, from any folder."""
    file = [] if experiment.path is None else [str(experiment.path.resolve())]
    return shlex.join(["killpoint", "run", *file, "--seed", str(experiment.run.seed)])


@cache
def platform_facts() -> dict[str, str]:
    """What the bits of a trajectory depend on beside configuration, data and code: versions and processor."""
    versions = {name: _version(name) for name in _LIBRARIES}
    return {"python": platform.python_version(), "processor": _processor(), "accelerator": _accelerator(), **versions}


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "none"


def _processor() -> str:
    """Its model and what it can do: torch chooses its kernels by that."""
    wanted = ("model name", "flags", "CPU part")
    found: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in wanted:
                found.setdefault(name.strip(), value.strip())
    except OSError:
        return platform.processor() or platform.machine()
    wide = [flag for flag in ("avx512f", "avx2", "amx_tile", "sve") if flag in found.get("flags", "").split()]
    name = found.get("model name") or found.get("CPU part") or "?"
    return " ".join([platform.machine(), name, *wide])


def _accelerator() -> str:
    """The GPU's driver file says that there is one; its name comes with torch, which is not imported for this."""
    folder = Path("/proc/driver/nvidia/gpus")
    try:
        texts = [(gpu / "information").read_text("utf-8").splitlines()[0] for gpu in sorted(folder.iterdir())]
    except (OSError, IndexError):
        return "none"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "none" if hidden == "" or not texts else texts[0].partition(":")[2].strip()


def training_spec(experiment: Experiment, run: str, folder: Path, workload: str) -> TrainingSpec:
    """The supervisor's input."""
    chaos_only = {"workload", "config", "threads_per_rank", "fork_workers", "twin", "tolerance"}
    return TrainingSpec(
        run=run,
        folder=folder,
        workload=workload,
        workload_config=experiment.run.config,
        threads_per_rank=experiment.threads_per_rank,
        config_digest=experiment.training_digest,
        **experiment.run.model_dump(exclude=chaos_only),
    )


def run_facts(experiment: Experiment, run: str, workload: str) -> dict[str, Any]:
    """The fields of the `run` event."""
    settings = experiment.run
    names = ("seed", "ranks", "microbatches", "global_batch", "steps", "save_every", "save_every_microbatches", "keep",
             "standbys", "twin", "tolerance", "precision", "non_finite", "keep_best")  # fmt: skip
    return {
        "run": run,
        "workload": workload,
        "experiment_digest": f"sha256:{hashlib.sha256(experiment.text.encode()).hexdigest()}",
        "config_digest": experiment.config_digest,
        "training_digest": experiment.training_digest,
        "threads_per_rank": experiment.threads_per_rank,
        "code_version": code_version(),
        "platform": platform_facts(),
        "reproduce": reproduce_command(experiment),
        "faults": [fault.to_json() for fault in experiment.faults],
        **{name: getattr(settings, name) for name in names},
    }


def placed_workload(experiment: Experiment) -> str:
    """A workload in a file is named from the experiment file's folder; other processes need it absolute."""
    workload = experiment.run.workload
    place, colon, function = workload.rpartition(":")
    if not place.endswith(".py"):
        return workload
    base = Path.cwd() if experiment.path is None else experiment.path.resolve().parent
    return f"{base / place}{colon}{function}"
