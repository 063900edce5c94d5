"""Errors of the chaos package. Each message says what happened, where, and what to do.

ChaosError
├── ExperimentError          the experiment file is wrong; names file, line and field
│   └── UnknownPoint         a kill point that does not exist; names the nearest
├── OutputExists             the folder for a new run is already there; nothing was overwritten
├── CannotCreate             the folder for a new run cannot be created where it was asked for
├── NotARun                  a folder that was given as a run is none
├── RunFinished              a run that has reached its target: there is nothing left to do but to judge it
├── RunChanged               --resume of a run whose code, dataset or processors are not what they were
├── TwinFailed               the same run without faults did not finish, or was not valid itself
├── ExportFailed             nothing to export verifies, or the copy cannot be written or loaded
├── DeviceMissing            the run's precision needs GPUs that this machine does not have
├── RayUnreachable           no Ray to connect to, or it could not be started
├── GateError                a kill that was planned behind a gate did not find it as planned
│   ├── GateNotHeld          the background work never stood at the gate: the fault did not strike
│   └── GateNotReleased      the gate was held and nothing struck: the held work stopped waiting
├── GalleryError             there is no gallery of planted bugs where one was looked for, or it is not well formed
├── LabError                 a lab could not be completed
│   └── CheckpointRefused    a lab's checkpoint is damaged, inconsistent, or belongs to something else
├── ReportError              what a page is to show cannot be read, or the page cannot be as small as it must
├── CheckError               an option of a check that makes no sense
├── SweepError               a sweep or a check cannot be drawn up, or its folder holds another one
│   └── RecordingFailed      a run that is to show what there is to kill did not end valid
├── IntervalsError           intervals cannot be measured, or the folder or file is of something else
└── RunInterrupted           Ctrl-C, SIGTERM or SIGHUP

`chaos.faults.InjectedFault` is no error of this package: it is the fault.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainers.points import PointRaised


class ChaosError(Exception):
    """Root of every error that this package raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in an experiment file. `line` counts from 1, 0 where there is none."""

    source: str
    line: int
    field: str
    what: str

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.line else self.source
        return f"{place}: {self.field}: {self.what}" if self.field else f"{place}: {self.what}"


class ExperimentError(ChaosError):
    """The experiment file is wrong. `problems` has every finding, the message one line for each."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class UnknownPoint(ExperimentError):
    """A kill point that is not in the catalogue."""


class OutputExists(ChaosError):
    """The folder for a new run exists. Give another one, or `--resume` it."""


class CannotCreate(ChaosError):
    """The folder for a new run cannot be created there."""


class NotARun(ChaosError):
    """The folder holds no run: it has no experiment.yaml, store or history."""


class RunFinished(ChaosError):
    """The run has reached its target step: there is nothing to resume."""


class RunChanged(ChaosError):
    """What the run is made of has changed since it began: going on would mix two trainings. Nothing was touched."""


class DeviceMissing(ChaosError):
    """The run's precision needs GPUs that this machine does not have. Nothing was started."""


class TwinFailed(ChaosError):
    """There is no twin to compare a run with. The run keeps its own verdict, and invariant 5 is unknown."""


class ExportFailed(ChaosError):
    """There is no checkpoint to export, or the copy could not be written or loaded again."""


class RayUnreachable(ChaosError):
    """Ray could not be started, or the address does not answer."""


class GateError(ChaosError, PointRaised):
    """A kill that was planned behind a gate did not find things as planned."""


class GateNotHeld(GateError):
    """The gate's passage was not reached within the deadline, or its process died. Nothing was struck."""


class GateNotReleased(GateError):
    """The gate was held until the deadline and its fault never struck."""


class LabError(ChaosError):
    """A lab could not be completed, so nothing was compared."""


class ReportError(ChaosError):
    """What a page is to show cannot be read, or the page cannot be made as small as it must be."""


class CheckError(ChaosError):
    """An option of a check that makes no sense. Nothing was started."""


class SweepError(ChaosError):
    """A sweep or a check cannot be drawn up, or its folder holds another one."""


class RecordingFailed(SweepError):
    """A run that is to show what there is to kill did not end valid. verdict: its own; why: the failure or witness."""

    def __init__(self, verdict: str, why: str, message: str) -> None:
        super().__init__(message)
        self.verdict, self.why = verdict, why


class IntervalsError(ChaosError):
    """Intervals cannot be measured as asked, or the folder or file given for them holds something else."""


class GalleryError(ChaosError):
    """The planted bugs were not found where they were looked for, or two of them have one number."""


class CheckpointRefused(LabError):
    """A lab does not go on from this checkpoint: its digest, its identity or its state is not as it must be."""


class RunInterrupted(ChaosError):
    """Ctrl-C, SIGTERM or SIGHUP: the run was cleaned up and can be resumed."""
