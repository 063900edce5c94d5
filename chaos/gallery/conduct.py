"""Runs what the gallery shows: each defect in a run where it bites and in one where it cannot, really killed.

Runs follow one another in one place; the auditor judges each while the next one trains. No name in a run's folder says
what was planted in it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from chaos.experiment import parse_experiment
from chaos.gallery.auditor import Auditor, verdict_of
from chaos.gallery.bugs import TINY, Bug, Case
from chaos.gallery.carrier import Carrier, Planted, uninstall
from chaos.gallery.judge import Row, row
from chaos.gallery.rivals import conduct_rivals
from chaos.life import Place
from chaos.run import run_experiment
from chaos.striker import Striker

_Begun = tuple[Path, subprocess.Popen[str]]
_CPUS = 5  # of a run of two ranks and a standby, with Ray Data's tasks
_CACHE = "XDG_CACHE_HOME"


class Conductor:
    """Runs bugs of the folder `bugs` below `folder`, in a place that takes up its processes again."""

    def __init__(self, bugs: Path, folder: Path, place: Place) -> None:
        self._bugs, self._folder, self._place = bugs, folder, place
        self._auditor = Auditor(folder / "auditor")

    def rows(
        self, bugs: Mapping[str, Bug], begun: Callable[[Bug], None] = lambda bug: None,
        done: Callable[[Row], None] = lambda row: None,
    ) -> Iterator[Row]:  # fmt: skip
        """Conducts one bug after another."""
        waiting: list[tuple[Bug, tuple[_Begun, ...]]] = []
        for bug in bugs.values():
            begun(bug)
            waiting.append((bug, tuple(self._begun(bug, control) for control in (False, True))))
            if len(waiting) > 1:
                yield self._judged(*waiting.pop(0), done)
        for each in waiting:
            yield self._judged(*each, done)

    def _begun(self, bug: Bug, control: bool) -> _Begun:
        folder = self._run(bug, control)
        return folder, self._auditor.begin(folder)

    def _judged(self, bug: Bug, begun: tuple[_Begun, ...], done: Callable[[Row], None]) -> Row:
        verdicts = []
        for case, (folder, auditor) in zip((bug.plant, bug.control), begun, strict=True):
            verdict = verdict_of(auditor)
            verdicts.append(self._auditor.asked_oracle(folder, verdict) if case.oracle else verdict)
        found = row(bug, *verdicts)
        done(found)
        return found

    def _run(self, bug: Bug, control: bool) -> Path:
        case = bug.control if control else bug.plant
        name = hashlib.sha256(f"{bug.key} {control}".encode()).hexdigest()[:8]
        folder = self._folder / name
        shutil.rmtree(folder, ignore_errors=True)
        file = folder.with_suffix(".yaml")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_text(case), encoding="utf-8")
        planted = Planted(self._bugs, bug.key, control)
        with _caching_in(self._folder / "cache" / name):
            if case.rivals:
                self._place.enter(_CPUS, True)  # it may be the first run here, and the others join this one's Ray
                conduct_rivals(planted, file, folder, case.rivals)
            else:
                self._train(planted, case, file, folder)
        if case.after is not None:
            case.after(folder)
        return folder

    def _train(self, planted: Planted, case: Case, file: Path, folder: Path) -> None:
        """The twin has the defect too: it is part of the code, and what is not killed does not show it."""
        experiment = parse_experiment(file.read_text("utf-8"), file)
        self._place.striker = partial(Carrier, planted)
        watch = (lambda event: None) if case.watch is None else case.watch()
        try:
            outcome = run_experiment(experiment, folder, notify=watch, place=self._place)
        finally:
            self._place.striker = Striker
            uninstall()
        if outcome.interrupted is not None:
            raise KeyboardInterrupt


def _text(case: Case) -> str:
    settings: dict[str, Any] = {"run": {**TINY, **case.run}, "faults": [dict(fault) for fault in case.faults]}
    return yaml.safe_dump(settings, sort_keys=False)


@contextmanager
def _caching_in(folder: Path) -> Iterator[None]:
    """Twins of a run with a defect are no other run's."""
    before = os.environ.get(_CACHE)
    os.environ[_CACHE] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_CACHE]
        else:
            os.environ[_CACHE] = before
        shutil.rmtree(folder, ignore_errors=True)
