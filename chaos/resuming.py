"""Before a run goes on: whether it is still the same run, and which faults can no longer strike in it."""

from __future__ import annotations

from pathlib import Path

from chaos.errors import RunChanged
from chaos.experiment import Experiment
from chaos.faults import Fault
from chaos.points import Role
from chaos.receipts import has_receipt
from chaos.runfolder import Recorded
from trainers.spec import code_digest

_UNDONE = "undo that, or start a new run; nothing was touched"


def require_unchanged(folder: Path, experiment: Experiment, recorded: Recorded) -> None:
    """Compares with what the run recorded of itself. Raises RunChanged. The ranks compare again with each checkpoint.

    Reads the whole dataset, as the run itself does when it starts. One that is gone is left to the workload to write.
    """
    if experiment.training_digest != recorded.training_digest:
        raise RunChanged(
            f"{folder}: began with other `threads_per_rank` than {experiment.threads_per_rank}: `auto` takes it from "
            "the number of processors, and its numbers could not be continued here; resume it where it began"
        )
    if recorded.code is not None:
        files = [Path(file) for file in recorded.code["files"]]
        gone = [str(file) for file in files if not file.is_file()]
        if gone:
            raise RunChanged(f"{folder}: the workload's {', '.join(gone)} is gone; {_UNDONE}")
        if code_digest(files) != recorded.code["digest"]:
            named = ", ".join(map(str, files)) or "none"
            raise RunChanged(
                f"{folder}: the source was changed since the run began (Killpoint itself or the workload: {named}); "
                f"{_UNDONE}"
            )
    if recorded.dataset is not None and Path(recorded.dataset["path"]).is_dir():
        from trainers.dataset import open_dataset

        path = Path(recorded.dataset["path"])
        if open_dataset(path).fingerprint != recorded.dataset["fingerprint"]:
            raise RunChanged(f"{folder}: the dataset in {path} was changed since the run began; {_UNDONE}")


def recorded_workload(experiment: Experiment, recorded: str) -> str:
    """The workload that the run began with, to be imported again: it must be the one that its experiment names.

    Only the folder from which the experiment's relative path is seen is taken from the record. Raises RunChanged.
    """
    named = experiment.run.workload
    place, _, function = named.rpartition(":")
    place_then, _, function_then = recorded.rpartition(":")
    if place.endswith(".py"):
        wanted, found = Path(place).parts, Path(place_then).parts
        same = function == function_then and Path(place_then).is_absolute() and found[-len(wanted) :] == wanted
    else:
        same = named == recorded
    if not same:
        raise RunChanged(
            f"{experiment.source}: names the workload {named}, the run's history {recorded}: one of them is not this "
            "run's, and nothing of it was imported; start a new run"
        )
    return recorded


def out_of_reach(faults: tuple[Fault, ...], folder: Path, attempt: int | None) -> list[str]:
    """One sentence for each fault that was planned for an attempt that is over, and has not struck."""
    return [
        f"fault {fault.id} ({fault}) can no longer strike: the verdict cannot become valid"
        for fault in faults
        if attempt is not None and fault.attempt <= attempt and not _comes_again(fault)
        and not has_receipt(folder, fault.id)
    ]  # fmt: skip


def _comes_again(fault: Fault) -> bool:
    """A standby serves no attempt, and a supervisor is in attempt 0 until its first fence."""
    return fault.role is Role.STANDBY or (fault.role is Role.SUPERVISOR and fault.point == "recover.fence.before")
