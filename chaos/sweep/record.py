"""Runs the experiment twice to learn what it passes: undisturbed, and killed once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from chaos.errors import RecordingFailed, TwinFailed
from chaos.experiment import Experiment, parse_experiment
from chaos.life import Place
from chaos.run import Outcome, run_experiment
from chaos.runfacts import placed_workload
from chaos.runfolder import EXPERIMENT, read_recorded
from chaos.sweep.outline import Outline, outline
from chaos.sweep.trials import base
from chaos.twin import provide_twin
from storage.history import read_history

CLEAN, KILLED = "clean", "killed"


def record(experiment: Experiment, folder: Path, place: Place, say: Callable[[str], None]) -> Outline:
    """The outline of the experiment, from two runs in `folder`. Raises RecordingFailed if one does not end valid."""
    bare = undisturbed(experiment, folder, place, say)
    return with_recovery(experiment, bare, folder, place, say)


def undisturbed(experiment: Experiment, folder: Path, place: Place, say: Callable[[str], None]) -> Outline:
    """What a clean run passes; nothing of a recovery yet. Raises RecordingFailed."""
    say("recording what a run passes: once undisturbed")
    clean = _run(experiment, (), folder / CLEAN, place).folder
    return outline(experiment.run, clean, clean, _run_id(clean), _blocks(experiment, clean))


def with_recovery(
    experiment: Experiment, bare: Outline, folder: Path, place: Place, say: Callable[[str], None]
) -> Outline:
    """The same and what a run passes that was killed once. Raises RecordingFailed."""
    say("and once killed")
    clean = folder / CLEAN
    killed = _run(experiment, base(bare).faults, folder / KILLED, place).folder
    return outline(experiment.run, clean, killed, _run_id(clean), _blocks(experiment, clean))


def share_twin(experiment: Experiment, folder: Path, place: Place, say: Callable[[str], None]) -> None:
    """Has the twin trained once, beside the clean run in `folder`, before trials run side by side and all need it."""
    say("the twin, with which every trial is compared")
    of_trials = with_faults(experiment, (), folder / CLEAN / EXPERIMENT)  # where the workload is named as they name it
    try:
        provide_twin(of_trials, folder / CLEAN, place, lambda event: None)
    except TwinFailed:  # which every trial then says
        if place.interrupts.signal is not None:
            raise KeyboardInterrupt from None


def with_faults(experiment: Experiment, faults: Iterable[dict[str, Any]], path: Path, **run: Any) -> Experiment:
    """The experiment with these faults in place of its own, and other settings. `path`: the file that it would be."""
    settings = experiment.settings.run.model_dump(mode="json", exclude_defaults=True)
    settings |= {"workload": placed_workload(experiment), **run}
    return parse_experiment(yaml.safe_dump({"run": settings, "faults": list(faults)}, sort_keys=False), path)


def _run(experiment: Experiment, faults: Iterable[dict[str, Any]], folder: Path, place: Place) -> Outcome:
    recorded = with_faults(experiment, faults, folder / EXPERIMENT, twin=False)
    outcome = run_experiment(recorded, folder, record_passages=True, place=place)
    if outcome.interrupted is not None:
        raise KeyboardInterrupt
    if outcome.verdict["verdict"] != "valid":
        wrong = "; ".join(
            f"{each['name']}: {each['witness']}" for each in outcome.verdict["invariants"]
            if each["verdict"] in ("invalid", "unknown")
        )  # fmt: skip
        raise RecordingFailed(
            outcome.verdict["verdict"], outcome.failure or wrong,
            f"{folder}: a run that is to show what there is to sweep ended {outcome.verdict['verdict']}: "
            f"{outcome.failure or wrong}. Mend that first; `killpoint audit {folder}` says more",
        )  # fmt: skip
    return outcome


def _run_id(folder: Path) -> str:
    return read_recorded(folder).run


def _blocks(experiment: Experiment, folder: Path) -> dict[int, int]:
    """Rank → blocks of its input that tasks of Ray Data read in attempt 0; they have no history to count in."""
    from trainers.dataset import open_dataset
    from trainers.pipeline import blocks_of
    from trainers.source import Share

    lines = (line for path in (folder / "history").glob("supervisor-*") for line in read_history(path).lines)
    place = next(line.body["dataset"]["path"] for line in lines if line.event == "dataset")
    run, row_bytes = experiment.run, open_dataset(Path(place)).row_bytes
    shares = (Share(rank, run.ranks, run.global_batch, run.microbatches) for rank in range(run.ranks))
    return {share.rank: blocks_of(share, row_bytes, run.steps) for share in shares}
