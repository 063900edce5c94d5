"""The twin: the same training, never interrupted, beside the run that it is compared with (invariant 5).

A twin is a run of its own, judged valid by itself. It is kept below $XDG_CACHE_HOME/killpoint/twins under everything
that its bits depend on (configuration, threads, dataset, plan, code, library versions, processor), so that a thousand
trials of one experiment need one. The run folder gets its own copy of the evidence, `RUN/twin/`, and can be judged
anywhere; the shards in it are hard links, where the file system allows it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.errors import TwinFailed
from chaos.experiment import Experiment
from chaos.life import Life, Notify, Place
from chaos.runfacts import platform_facts, run_facts, training_spec
from chaos.runfolder import EXPERIMENT, HISTORY, STORE, VERDICT, create, new_run_id, read_recorded
from storage.log import CommitLog, Publish, entry_name
from storage.manifest import Fingerprints, decode, manifest_path
from storage.objects import LocalObjects
from storage.sealed import canonical, unseal
from trainers.events import Event, Log
from trainers.spec import BUILT_IN

TWIN, SECOND = "twin", "twin-2"
_KEPT = 16  # twins in the cache; the ones used last


@dataclass(frozen=True)
class TwinEvent:
    """Something that happened in the twin, not in the run."""

    event: Event


def provide_twin(experiment: Experiment, folder: Path, place: Place, notify: Callable[[Any], None]) -> None:
    """Puts the twin of the finished run in `folder` beside it, from the cache or by training it. Raises TwinFailed."""
    if (folder / TWIN).exists():
        return
    cached = cache_folder() / twin_key(fingerprints(folder))
    if _usable(cached):
        notify(Log("the twin is known already"))
    else:
        cached = _keep(_trained(experiment, folder, place, notify), cached)
    _copy(cached, folder / TWIN)


def provide_second(experiment: Experiment, folder: Path, place: Place, notify: Callable[[Any], None]) -> None:
    """A second twin, trained apart: if the two differ, the workload is not deterministic. Raises TwinFailed.

    It is kept like the first one: trial after trial that fails needs no more than two.
    """
    if (folder / SECOND).exists():
        return
    cached = cache_folder() / f"{twin_key(fingerprints(folder))}-2"
    if not _usable(cached):
        notify(Log("the run differs from its twin; training a second twin, to see whether twins are equal at all"))
        cached = _keep(_trained(experiment, folder, place, notify), cached)
    _copy(cached, folder / SECOND)


def cache_folder() -> Path:
    """Where twins are kept."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "killpoint" / "twins"


def fingerprints(folder: Path) -> Fingerprints:
    """Those of the newest published checkpoint of a run."""
    objects = LocalObjects(folder / STORE)
    run = unseal(objects.read(entry_name(0)), entry_name(0))[0]["run"]
    newest = [entry for entry in CommitLog(objects, run).read() if isinstance(entry, Publish)][-1]
    return decode(objects.read(manifest_path(newest.name)), newest.name)[0].fingerprints


def twin_key(prints: Fingerprints) -> str:
    """Name of the twin of all runs with these fingerprints on this platform. Threads are part of `config`."""
    what = {"format": "killpoint.twin/1", "fingerprints": vars(prints), "platform": platform_facts()}
    return hashlib.sha256(canonical(what)).hexdigest()[:32]


def _trained(experiment: Experiment, run: Path, place: Place, notify: Callable[[Any], None]) -> Path:
    settings = experiment.settings.run.model_copy(update={"standbys": 0, "keep": 2, "twin": False})
    whole = experiment.settings.model_copy(update={"run": settings, "faults": []})
    twin = Experiment(experiment.path, experiment.text, whole, ())
    folder = cache_folder() / f"tmp-{os.getpid()}-{secrets.token_hex(4)}"
    create(folder, twin)
    try:
        _lead(twin, read_recorded(run).workload, folder, place, lambda event: notify(TwinEvent(event)))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def _lead(twin: Experiment, workload: str, folder: Path, place: Place, notify: Notify) -> None:
    from chaos.audit import audit_run

    notify(Log("training the twin: the same run, uninterrupted"))
    run = f"twin-{new_run_id(twin)}"
    reuse = place.reuse and twin.run.workload in BUILT_IN  # which keep nothing outside of what is built anew
    life = Life(twin, training_spec(twin, run, folder, workload), place, notify, reuse=reuse)
    failure = life.lead("run", run_facts(twin, run, workload))
    if failure is not None:
        raise TwinFailed(f"the twin, the same run without faults, did not finish: {failure}")
    verdict = audit_run(folder).to_json()
    if verdict["verdict"] != "valid":
        bad = [i for i in verdict["invariants"] if i["verdict"] in ("invalid", "unknown")]
        wrong = "; ".join(f"{i['name']}: {i['witness']}" for i in bad)
        raise TwinFailed(f"the twin, the same run without faults, is itself {verdict['verdict']}: {wrong}")


def _usable(folder: Path) -> bool:
    """Whether there is a twin that still is what it was when it was put there."""
    if not folder.is_dir():
        return False
    from chaos.audit import audit_run

    if audit_run(folder).to_json()["verdict"] == "valid":
        os.utime(folder)
        return True
    _remove(folder)
    return False


def _keep(made: Path, cached: Path) -> Path:
    """Puts a new twin in the cache, unless somebody else was faster, and forgets those that were used longest ago."""
    try:
        made.rename(cached)
    except OSError:
        shutil.rmtree(made)
    known = [path for path in cached.parent.iterdir() if not path.name.startswith("tmp-")]
    with suppress(OSError):
        for path in sorted(known, key=lambda path: path.stat().st_mtime, reverse=True)[_KEPT:]:
            _remove(path)
    return cached


def _remove(folder: Path) -> None:
    """Renamed first, so that nobody takes up half of it."""
    doomed = folder.with_name(f"tmp-{secrets.token_hex(4)}-{folder.name}")
    with suppress(OSError):
        folder.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def _copy(twin: Path, target: Path) -> None:
    draft = target.with_name(f"{target.name}.tmp-{secrets.token_hex(4)}")
    shutil.copytree(twin / HISTORY, draft / HISTORY)
    for name in ("log", "manifests", "ledger"):
        shutil.copytree(twin / STORE / name, draft / STORE / name)
    (draft / STORE / "shards").mkdir()
    for shard in (twin / STORE / "shards").iterdir():
        with suppress(OSError):  # another file system: the evidence is complete without
            os.link(shard, draft / STORE / "shards" / shard.name)
    for name in (EXPERIMENT, VERDICT):
        if (twin / name).exists():
            shutil.copy2(twin / name, draft / name)
    draft.rename(target)
