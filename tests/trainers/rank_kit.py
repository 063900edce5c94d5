"""One rank and a committer in this process, over a real store: lives of a run without a cluster around them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from training_kit import training_spec

from storage.history import History
from storage.log import Candidate as Listed
from storage.log import CommitLog, Publish
from storage.manifest import manifest_path
from storage.objects import LocalObjects, Reached
from storage.process import current_process
from trainers.committer import Committer
from trainers.points import NoPoints
from trainers.rank import Rank
from trainers.reports import CommitterSetup, Outcome, Vote
from trainers.spec import Assignment, Candidate, TrainingSpec


class Points(NoPoints):
    """Calls `then` at every point, those in the background too; `passed` lists them."""

    def __init__(self) -> None:
        self.then: Callable[[str], None] = lambda point: None
        self.passed: list[str] = []

    def __call__(self, point: str) -> None:
        self.passed.append(point)
        self.then(point)

    def bound(self) -> Reached:
        return self


class Place:
    """A run's folder. Each life, an attempt, is a new rank with a new history."""

    def __init__(self, folder: Path, dataset: Path, **changes: Any) -> None:
        self.folder, self.dataset, self._changes = folder, dataset, changes
        self.objects = LocalObjects(folder / "store")
        self.log = CommitLog(self.objects, "r1")
        self.lives = 0

    def life(self, **changes: Any) -> Life:
        self.lives += 1
        spec = training_spec(self.folder, self.dataset, **{**self._changes, **changes})
        return Life(self, spec, self.folder / f"life-{self.lives}")

    def published(self) -> list[Publish]:
        return [entry for entry in self.log.read() if isinstance(entry, Publish)]

    def candidate(self, publish: Publish) -> Candidate:
        return Candidate(publish.name, publish.digest, publish.step, self.objects.read(manifest_path(publish.name)))


class Left(BaseException):
    """In place of the end of this process."""


class Notice:
    """A notice that the test gives."""

    heeded = came = False

    def arrived(self) -> bool:
        return self.came

    def leave(self) -> None:
        raise Left


class Life:
    """One attempt from 1 on, in which the rank reads its first steps itself; the test goes through its stages."""

    def __init__(self, place: Place, spec: TrainingSpec, histories: Path) -> None:
        self.place, self.spec, self.points = place, spec, Points()
        self.history = History.open(histories, "worker", "r1")
        self.notice = Notice()
        self.rank = Rank(spec, self.history, self.points, self.notice)
        setup = CommitterSetup("r1", str(histories), spec.ranks, spec.global_batch, spec.keep)
        (histories / "store").symlink_to(place.folder / "store")
        (place.folder / "store").mkdir(exist_ok=True)
        self.committer = Committer()
        self.committer.serve(setup, NoPoints())
        self.attempt = -1

    def prepare(self, publish: Publish | None = None, **changes: Any) -> Vote:
        """Fence, choose `publish`, form the group and load. `changes`: to the fingerprints."""
        log = self.place.log
        while self.attempt < 1:  # the first life is attempt 1: attempt 0 ended before it chose
            self.attempt = log.fence(self.spec.config_digest, current_process()).attempt
        listed = [Listed(publish.name, publish.digest, publish.step, "chosen")] if publish else []
        log.choose(self.attempt, publish.as_parent() if publish else None, listed)
        survey = self.rank.survey()
        survey = dataclasses.replace(survey, fingerprints=dataclasses.replace(survey.fingerprints, **changes))
        self.parent, self.prints = publish, survey.fingerprints
        assignment = Assignment(self.attempt, 0, "nowhere.invalid", 1, survey, 50)
        return self.rank.prepare(assignment, self.place.candidate(publish) if publish else None)

    def train(self) -> Outcome:
        parent = self.parent.as_parent() if self.parent else None
        self.committer.begin(self.attempt, parent, self.prints, self.history.clock)
        return self.rank.train(100, self.committer.report)
