"""A training run without training: writes the store, histories, receipts and dataset that a correct one would.

What a planted defect changes goes through `edit`: a function from the kind of thing (entry, manifest, shard, rows,
segment, event, receipt) and the thing itself, changed in place before it is sealed. All digests downstream then fit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import audit_files as files
import numpy as np
from plan_reference import sample_id

RUN = "run-1"
Edit = Callable[[str, Any], None]


_planned = cache(sample_id)


def _nothing(kind: str, thing: Any) -> None:
    pass


@cache
def _dataset(rows: int, group_rows: int) -> tuple[dict[str, Any], dict[str, bytes], str, Any]:
    """Columns, files, fingerprint, and each row's digest. Shared: not to be changed."""
    rng = np.random.default_rng(3)
    columns = {"x": rng.random((rows, 3), np.float32), "a": rng.integers(0, 9, rows)}
    return columns, *files.dataset(columns, 24, group_rows), files.contents(columns)


@dataclass
class Settings:
    ranks: int = 2
    microbatches: int = 2
    global_batch: int = 8
    steps: int = 12
    save_every: int = 2
    save_every_microbatches: int | None = None
    keep: int = 2
    rows: int = 50
    group_rows: int = 8
    window_groups: int = 2
    seed: int = 7
    scheduler: bool = True
    buffers: bool = True
    optimizer: str = "adam"
    constant_rate: bool = False
    generators_advance: bool = True
    keep_best: bool = False
    losses: dict[int, float] = field(default_factory=dict)  # of a step, where it is not 1 / step
    skips: tuple[int, ...] = ()  # steps whose update is skipped
    skips_for: str = "gradient"
    twin: bool = False
    tolerance: float = 0.0
    faults: list[dict[str, Any]] = field(default_factory=list)


def fault(number: int, attempt: int, role: str, rank: int | None, point: str, **more: Any) -> dict[str, Any]:
    planned = {"id": f"f{number}", "kind": "sigkill", "attempt": attempt, "role": role, "rank": rank, "point": point,
               "hit": 1, "after_s": None, "gate": None}  # fmt: skip
    return {**planned, **more}


@dataclass
class Proc:
    role: str
    rank: int | None
    history: files.Recorder
    launcher: files.Recorder
    alive: bool = True


class Simulation:
    """Drive it with start, train, kill, recover and finish."""

    def __init__(self, folder: Path, settings: Settings | None = None, edit: Edit = _nothing) -> None:
        self.folder, self.set, self.edit = folder, settings or Settings(), edit
        for name in ("log", "manifests", "shards", "ledger", "tmp", "quarantine"):
            (folder / "store" / name).mkdir(parents=True)
        (folder / "history" / "receipts").mkdir(parents=True)
        self.t_ns, self.pid = 1_000_000_000, 100
        self.log: list[tuple[dict[str, Any], str]] = []
        self.branch: list[dict[str, Any]] = []  # publishes of the lineage, oldest first
        self.retired: set[str] = set()
        self.attempt, self.step = -1, 0
        self.rows: dict[int, list[dict[str, Any]]] = {}
        self.procs: list[Proc] = []
        self.microbatch = 0  # of the step under way, done in what the attempt started from
        self.pending: list[tuple[Any, ...]] = []  # (step, rows by rank), inside a step also the microbatch
        self._known: dict[tuple[int, int, int], dict[str, str]] = {}
        self._data()
        self.supervisor = self._recorder("supervisor")

    # -- places and time

    def tick(self, ms: float = 1.0) -> int:
        self.t_ns += int(ms * 1e6)
        return self.t_ns

    def _recorder(self, role: str) -> files.Recorder:
        self.pid += 1
        return files.Recorder(self.folder / "history", role, self.pid, self.pid * 10, RUN, self.tick())

    def say(self, recorder: files.Recorder, event: str, attempt: int | None = None, **fields: Any) -> None:
        body = {"event": event, "attempt": attempt, "role": recorder.name.partition("-")[0], **fields}
        self.edit("event", body)
        if body.get("drop"):
            return
        name, attempt = body.pop("event"), body.pop("attempt")
        if name not in ("opened", "process", "detected"):
            body.pop("role")
        recorder.record(name, attempt, self.tick(), **body)

    def _data(self) -> None:
        self.dataset = self.folder.parent / f"{self.folder.name}-data"
        self.dataset.mkdir(parents=True)
        self.columns, written, self.fingerprint, self.digests = _dataset(self.set.rows, self.set.group_rows)
        for name, data in written.items():
            (self.dataset / name).write_bytes(data)

    # -- processes

    def _process(self, role: str, rank: int | None) -> Proc:
        launcher = self._recorder("launcher")
        history = self._recorder("committer" if role == "committer" else "worker")
        self.say(launcher, "spawned", None, **history.who)
        proc = Proc(role, rank, history, launcher)
        self.procs.append(proc)
        self.say(self.supervisor, "process", max(self.attempt, 0), role=role, rank=rank, host="h",
                 history=history.name, **history.who)  # fmt: skip
        return proc

    def of(self, role: str, rank: int | None = None) -> Proc:
        return next(p for p in self.procs if p.alive and (p.role, p.rank) == (role, rank))

    def start(self) -> None:
        s = self.set
        plan = {"rows": s.rows, "group_rows": s.group_rows, "window_groups": s.window_groups, "seed": s.seed}
        self.plan_print = (
            "sha256:"
            + files.hashlib.sha256(files.canonical({"format": "killpoint.plan/1", **plan})).hexdigest()
        )
        experiment = b"run: {workload: w}\n"
        (self.folder / "experiment.yaml").write_bytes(experiment)
        self.say(
            self.supervisor, "run", run=RUN, seed=s.seed,
            experiment_digest="sha256:" + files.hashlib.sha256(experiment).hexdigest(),
            config_digest="sha256:c", code_version="1",
            training_digest="sha256:t", platform={"torch": "2"}, twin=s.twin, tolerance=s.tolerance,
            reproduce="killpoint run", workload="w", ranks=s.ranks, microbatches=s.microbatches,
            global_batch=s.global_batch, steps=s.steps, save_every=s.save_every, keep=s.keep, faults=s.faults,
            save_every_microbatches=s.save_every_microbatches,
            plan=plan, dataset={"path": str(self.dataset), "fingerprint": self.fingerprint, "rows": s.rows},
        )  # fmt: skip
        self.say(self.supervisor, "process", role="supervisor", rank=None, host="h", history=self.supervisor.name,
                 **self.supervisor.who)  # fmt: skip
        self.begin()

    def begin(self, reject: int = 0, take: int | None = None, reason: str = "has another digest") -> None:
        """Next attempt: fence, choose candidate number `take` (default: after those rejected), restore."""
        self.fence()
        self.choose(reject, take, reason)
        self.restore()

    def fence(self) -> None:
        self.attempt += 1
        owner = {"host": "h", **self.supervisor.who}
        seq = self.append("fence", config="sha256:t", owner=owner)
        self.say(self.supervisor, "fenced", self.attempt, seq=seq)

    def choose(self, reject: int = 0, take: int | None = None, reason: str = "has another digest") -> None:
        found = [p for p in reversed(self.branch) if p["name"] not in self.retired]
        take = reject if take is None else take
        notes = [
            {**ref(p), "status": "rejected" if i < reject else "chosen" if i == take else "not_examined",
             "reason": reason if i < reject else ""}
            for i, p in enumerate(found)
        ]  # fmt: skip
        parent = ref(found[take]) if take < len(found) else None
        seq = self.append("choose", parent=parent, candidates=notes)
        body = self.log[-1][0]
        parent = body["parent"]
        self.parent = parent
        names = [p["name"] for p in self.branch]
        if parent is None:
            self.branch = []
        elif parent["name"] in names:
            self.branch = self.branch[: names.index(parent["name"]) + 1]
        self.step = 0 if parent is None else parent["step"]
        self.microbatch = 0 if parent is None else microbatch_of(parent["name"])
        chosen = parent or {"name": None, "digest": None, "step": 0}
        self.say(self.supervisor, "chosen", self.attempt, seq=seq, **chosen)

    def restore(self) -> None:
        for rank in range(self.set.ranks):
            if not any(p.alive and (p.role, p.rank) == ("rank", rank) for p in self.procs):
                self._process("rank", rank)
        if not any(p.alive and p.role == "committer" for p in self.procs):
            self._process("committer", None)
        self.say(self.of("committer").history, "began", self.attempt)
        chosen = self.parent or {"name": None, "digest": None, "step": 0}
        for rank in range(self.set.ranks):
            history = self.of("rank", rank).history
            self.say(history, "joined", self.attempt, rank=rank, world=self.set.ranks)
            for note in self.log[-1][0].get("candidates", ()) if self.log[-1][0]["kind"] == "choose" else ():
                if note["status"] == "chosen":
                    self.say(history, "loaded", self.attempt, rank=rank, name=note["name"], ok=True, reason="")
        self.say(self.supervisor, "formed", self.attempt, world=self.set.ranks)
        for rank in range(self.set.ranks):
            parts = self.parts_at(chosen["step"], rank, self.microbatch)
            self.say(self.of("rank", rank).history, "restored", self.attempt, rank=rank, name=chosen["name"],
                     digest=chosen["digest"], step=chosen["step"], cursor=chosen["step"] * self.set.global_batch,
                     parts=parts, state=self.prints(chosen["step"], rank, self.microbatch),
                     **inside(self.microbatch))  # fmt: skip
        self.say(self.supervisor, "restored", self.attempt)
        self.say(self.supervisor, "training", self.attempt)
        self.rows = {rank: [] for rank in range(self.set.ranks)}

    # -- training

    def planned(self, position: int) -> int:
        s = self.set
        return _planned(position, s.rows, s.group_rows, s.window_groups, s.seed)

    def train(self, upto: int, publish: bool = True, microbatches: int = 0) -> None:
        """Updates until `upto` are done, and `microbatches` of the next one.

        publish: whether due saves get published at once.
        """
        s = self.set
        while self.step < upto or (self.step == upto and microbatches):
            last = s.microbatches if self.step < upto else microbatches
            ids_of = self._accumulate(last, publish)
            if last < s.microbatches:
                return
            self.microbatch = 0
            for rank in range(s.ranks):
                ids = ids_of[rank]
                rate = 0.1 if s.constant_rate else 0.1 / (1 + self.step)
                digest = files.bulk(ids.astype("<i8").tobytes())
                loss, skipped = self.loss(self.step + 1), self.step + 1 in s.skips
                history = self.of("rank", rank).history
                if skipped:
                    self.say(history, "non_finite", self.attempt, rank=rank, step=self.step + 1, what=s.skips_for,
                             action="skip", loss=loss.hex(), gradient_norm="inf", scale=(1.0).hex())  # fmt: skip
                self.say(history, "step", self.attempt, rank=rank, step=self.step + 1,
                         loss=loss.hex(), lr=[rate.hex()], gradient_norm=(0.5 + self.step).hex(),
                         state=self.prints(self.step + 1, rank), samples_seen=(self.step + 1) * s.global_batch,
                         ids=digest, skipped=skipped, wait_s=0.0, train_s=0.1)  # fmt: skip
            self.step += 1
            if self._due(self.step * s.microbatches):
                self.save(publish)

    def _due(self, done: int) -> bool:
        """Whether a save falls due after so many microbatches of the whole run."""
        s, (step, microbatch) = self.set, divmod(done, self.set.microbatches)
        boundary = not microbatch and (step % s.save_every == 0 or step == s.steps)
        return boundary or (s.save_every_microbatches is not None and done % s.save_every_microbatches == 0)

    def _accumulate(self, last: int, publish: bool) -> dict[int, Any]:
        """The step's microbatches from self.microbatch to `last`, with the saves between them; each rank's ids."""
        s, each = self.set, self.set.global_batch // self.set.ranks
        of_rank, ids = {}, {}
        for rank in range(s.ranks):
            begin = self.step * s.global_batch + rank * each
            positions, microbatch = np.arange(begin, begin + each), np.arange(each) * s.microbatches // each
            mine = (microbatch >= self.microbatch) & (microbatch < last)
            consumed = {
                "position": positions[mine], "sample_id": np.array([self.planned(int(p)) for p in positions[mine]]),
                "step": np.full(mine.sum(), self.step), "microbatch": microbatch[mine],
                "rank": rank, "attempt": self.attempt,
            }  # fmt: skip
            self.edit("consume", consumed)
            before = [self.planned(int(p)) for p in positions[microbatch < self.microbatch]]
            ids[rank] = np.array([*before, *consumed["sample_id"]], np.int64)
            content = [self.digests[i % s.rows] for i in consumed["sample_id"].tolist()]
            consumed["content"] = np.array(content, np.uint64)
            self.edit("rows", consumed)
            of_rank[rank] = consumed
        done = self.step * s.microbatches
        stops = [m for m in range(self.microbatch + 1, min(last + 1, s.microbatches)) if self._due(done + m)]
        first = -1 if self.microbatch == 0 else self.microbatch
        for stop in [*stops, s.microbatches + 1]:
            for rank, consumed in of_rank.items():
                rows = (consumed["microbatch"] >= first) & (consumed["microbatch"] < stop)
                if rows.any() or stop > s.microbatches:
                    self.rows[rank].append({n: a[rows] if n in files.LEDGER else a for n, a in consumed.items()})
            if stop < s.microbatches:
                self.save(publish, stop)
            first = stop
        return ids

    def save(self, publish: bool = True, microbatch: int = 0) -> None:
        taken, self.rows = self.rows, {rank: [] for rank in self.rows}
        for rank in range(self.set.ranks):
            history = self.of("rank", rank).history
            parts = self.parts_at(self.step, rank, microbatch)
            due = {"parts": {n: parts[n] for n in ("gradients", "accumulation")}} if microbatch else {}
            self.say(history, "save_due", self.attempt, rank=rank, step=self.step, **inside(microbatch), **due)
            self.say(history, "save_staged", self.attempt, rank=rank, step=self.step, stall_s=0.0, waited_s=0.0,
                     **inside(microbatch))  # fmt: skip
        self.pending.append((self.step, taken, microbatch) if microbatch else (self.step, taken))
        if publish:
            self.publish()

    def state(
        self, step: int, rank: int, microbatch: int = 0
    ) -> tuple[dict[str, str], dict[str, Any], dict[str, Any], dict[str, str]]:
        """parts, shared tensors (all), local tensors, texts; a function of the moment alone."""
        s = self.set
        skipped, best = self.skips_upto(step), self.best_step(step)
        shared: dict[str, Any] = {f"model/p{i}": np.full(4, step - skipped + i, np.float32) for i in range(2)}
        if s.optimizer == "adam" and step - skipped:
            for i in range(2):
                shared[f"optimizer/p{i}/step"] = np.array(step - skipped, np.float32)
                shared[f"optimizer/p{i}/exp_avg"] = np.full(4, step * 0.5, np.float32)
        clock = step + 100 * microbatch if s.generators_advance else 0
        local: dict[str, Any] = {"rng/torch": np.full(8, (clock + rank) % 256, np.uint8)}
        if s.buffers:
            local["buffer/n"] = np.array(step, np.int64)
        progress = {"step": step, "cursor": step * s.global_batch, "samples_seen": step * s.global_batch,
                    "updates": step - skipped, "skipped": skipped, "loss_count": step, "best_step": best,
                    "best_metric": None if best is None else self.loss(best).hex(),
                    "loss_tail": [self.loss(s).hex() for s in range(max(0, step - 256) + 1, step + 1)]}  # fmt: skip
        texts = {
            "optimizer": json.dumps({"groups": []}),
            "scheduler": json.dumps({"last_epoch": step}) if s.scheduler else "null",
            "scaler": "null", "progress": json.dumps(progress),
            "rng.python": json.dumps([clock, rank]), "rng.numpy": json.dumps([clock, rank]),
        }  # fmt: skip
        if s.keep_best:
            texts["best"] = json.dumps({"metric": progress["best_metric"], "step": best})
            source = 0 if best is None else best - 1 - self.skips_upto(best - 1)
            shared |= {f"best/p{i}": np.full(4, source + i, np.float32) for i in range(2)}
            local["best_buffer/n"] = np.array(best or 0, np.int64)
        if microbatch:
            each = s.global_batch // s.ranks
            positions = step * s.global_batch + rank * each + np.arange(each // s.microbatches * microbatch)
            local["accumulation/sample_ids"] = np.array([self.planned(int(p)) for p in positions], np.int64)
            local |= {f"gradient/p{i}": np.full(4, step + rank + microbatch / 8, np.float32) for i in range(2)}
            loss = {"~": "f", "v": (0.5 * microbatch).hex()}
            texts["accumulation"] = json.dumps(
                {"step": step, "microbatch": microbatch, "microbatches": s.microbatches, "samples": len(positions),
                 "loss_sum": loss, "denominator": s.global_batch, "scale": None}
            )  # fmt: skip
        return self.parts(shared, local, texts), shared, local, texts

    def parts_at(self, step: int, rank: int, microbatch: int = 0) -> dict[str, str]:
        moment = step, rank, microbatch
        if moment not in self._known:
            self._known[moment] = self.state(step, rank, **inside(microbatch))[0]
        return dict(self._known[moment])

    def loss(self, step: int) -> float:
        return self.set.losses.get(step, 1 / step)

    def skips_upto(self, step: int) -> int:
        return sum(each <= step for each in self.set.skips)

    def best_step(self, step: int) -> int | None:
        finite = [n for n in range(1, step + 1) if np.isfinite(self.loss(n))]
        return min(finite, key=self.loss, default=None)

    def prints(self, step: int, rank: int, microbatch: int = 0) -> dict[str, str]:
        """Short digests of the parts, as a step has them: of a best model that of the model which it copies."""
        parts = self.parts_at(step, rank, microbatch).items()
        prints = {part: digest[-16:] for part, digest in parts if part not in ("gradients", "accumulation")}
        if self.set.keep_best:
            prints["best"] = self.parts_at((self.best_step(step) or 1) - 1, rank)["model"][-16:]
        return prints

    def parts(self, shared: dict[str, Any], local: dict[str, Any], texts: dict[str, str]) -> dict[str, str]:
        digests = {n: files.bulk(a.tobytes()) for n, a in {**shared, **local}.items()}
        prefixes = {"model": "model/", "optimizer": "optimizer/", "buffers": "buffer/", "rng.torch": "rng/torch",
                    "scheduler": None, "scaler": None, "progress": None, "rng.python": None,
                    "rng.numpy": None}  # fmt: skip
        if "best" in texts:
            prefixes |= {"best": "best/", "best.buffers": "best_buffer/"}
        if "accumulation" in texts:
            prefixes |= {"gradients": "gradient/", "accumulation": "accumulation/"}
        return {name: files.part(digests, prefix, texts.get(name)) for name, prefix in prefixes.items()}

    def publish(self) -> None:
        """The oldest save in flight: files, manifest, entry, retention."""
        step, taken, *microbatch = self.pending.pop(0)
        manifest = self.write(step, taken, *microbatch)
        data, digest = files.seal(manifest)
        (self.folder / "store" / "manifests" / f"{manifest['name']}.json").write_bytes(data)
        self.append_publish(manifest["name"], digest, step)
        self.retain()

    def append_publish(self, name: str, digest: str, step: int) -> None:
        seq = self.append("publish", name=name, digest=digest, step=step)
        entry = {"name": name, "digest": digest, "step": step}
        self.branch.append(entry)
        self.say(self.of("committer").history, "published", self.attempt, seq=seq, **entry)

    def write(self, step: int, taken: dict[int, list[dict[str, Any]]], microbatch: int = 0) -> dict[str, Any]:
        """Shards and ledger segments; returns the manifest's body."""
        s, store = self.set, self.folder / "store"
        name = f"s{step:08d}{f'-m{microbatch:04d}' if microbatch else ''}-a{self.attempt:04d}"
        listed, tensors, ranks, shared_parts = [], {}, [], {}
        parent = self.branch[-1] if self.branch else None
        for rank in range(s.ranks):
            _, shared, local, texts = self.state(step, rank, **inside(microbatch))
            mine = {n: a for i, (n, a) in enumerate(sorted(shared.items())) if i % s.ranks == rank}
            thing = {"shared": shared, "mine": mine, "local": local, "texts": texts, "rank": rank, "step": step,
                     "attempt": self.attempt, "meta": {
                         "format": "killpoint.shard/1", "run": RUN, "attempt": str(self.attempt), "step": str(step),
                         "rank": str(rank), "world": str(s.ranks), "cursor": str(step * s.global_batch),
                         **{key: str(value) for key, value in inside(microbatch).items()}}}  # fmt: skip
            self.edit("shard", thing)
            parts = self.parts(thing["shared"], local, texts)
            metadata = {**thing["meta"], **{f"part.{n}": t for n, t in texts.items()}}
            data = files.shard(metadata, {**mine, **local})
            listed.append(self._file(store, f"shards/{name}-r{rank:04d}.safetensors", "shard", rank, data))
            meta = {"run": RUN, "attempt": self.attempt, "step": step, "rank": rank,
                    "first_step": parent["step"] if parent else 0, "last_step": step if microbatch else step - 1,
                    **inside(microbatch)}  # fmt: skip
            if parent and microbatch_of(parent["name"]):
                meta["first_microbatch"] = microbatch_of(parent["name"])
            pieces = taken[rank]
            rows = {
                n: np.concatenate([p[n] for p in pieces] or [np.zeros(0, np.int64)]) for n in files.LEDGER
            }
            self.edit("segment", {"rows": rows, "meta": meta})
            listed.append(
                self._file(
                    store, f"ledger/{name}-r{rank:04d}.arrow", "ledger", rank, files.segment(rows, meta)
                )
            )
            tensors |= {n: files.bulk(a.tobytes()) for n, a in mine.items()}
            if rank == 0:
                shared_parts = {n: parts[n] for n in ("model", "optimizer", "best") if n in parts}
            own = {n: d for n, d in parts.items() if n not in shared_parts}
            ranks.append({"rank": rank, "parts": own, "tensors": {n: files.bulk(a.tobytes()) for n, a in local.items()},
                          "history": self.of("rank", rank).history.head})  # fmt: skip
        body = {
            "format": "killpoint.manifest/1", "run": RUN, "name": name, "attempt": self.attempt, "step": step,
            "world": s.ranks, "cursor": step * s.global_batch, "parent": parent["digest"] if parent else None,
            "fingerprints": {"dataset": self.fingerprint, "plan": self.plan_print, "config": "sha256:t", "code": "d"},
            "files": listed, "tensors": tensors, "parts": shared_parts, "ranks": ranks, **inside(microbatch),
        }  # fmt: skip
        self.edit("manifest", body)
        return body

    def _file(self, store: Path, path: str, kind: str, rank: int, data: bytes) -> dict[str, Any]:
        (store / path).write_bytes(data)
        return {"path": path, "kind": kind, "rank": rank, "bytes": len(data), "digest": files.bulk(data)}

    def retain(self) -> None:
        kept = {p["name"] for p in self.branch[-self.set.keep :]}
        gone = [p["name"] for p in self.branch if p["name"] not in kept and p["name"] not in self.retired]
        if gone:
            self.retire(gone)

    def retire(self, names: list[str]) -> None:
        seq = self.append("retire", names=names)
        self.retired |= set(names)
        for name in names:
            for path in (self.folder / "store" / "shards").glob(f"{name}-*"):
                path.unlink()
        self.say(self.of("committer").history, "retired", self.attempt, names=names, seq=seq)

    def append(self, kind: str, attempt: int | None = None, **own: Any) -> int:
        seq = len(self.log)
        body = {"format": "killpoint.log/1", "run": RUN, "seq": seq, "previous": self.log[-1][1] if self.log else None,
                "kind": kind, "attempt": self.attempt if attempt is None else attempt, **own}  # fmt: skip
        self.edit("entry", body)
        data, digest = files.seal(body)
        self.log.append((body, digest))
        (self.folder / "store" / "log" / f"{seq:08d}.json").write_bytes(data)
        return seq

    # -- failures

    def receipt(self, planned: dict[str, Any], target: files.Recorder | None, **more: Any) -> None:
        gate = planned["gate"]
        body = {
            "format": "killpoint.receipt/1", "fault": planned["id"], "run": RUN, "boot": "b", "t_ns": self.tick(),
            **{key: planned[key] for key in ("attempt", "role", "rank", "point", "hit", "kind")},
            "target": {**(target.who if target else {"pid": 1, "start_ticks": 1}), "host": "h"},
            "gate": None if gate is None else {**gate, "held": True},
            "history": target.head if target else None, **more,
        }  # fmt: skip
        self.edit("receipt", body)
        if not body.get("drop"):
            data, _ = files.seal(body)
            (self.folder / "history" / "receipts" / f"{planned['id']}.json").write_bytes(data)

    def kill(self, planned: dict[str, Any]) -> Proc:
        """Strikes as planned, and everybody notices."""
        proc = self.of(planned["role"], planned["rank"])
        self.receipt(planned, proc.history)
        how = {"sigkill": "actor_died", "hang": "stopped", "exception": "raised"}[planned["kind"]]
        if planned["kind"] == "sigkill":
            self.exited(proc, 9)
        self.say(self.supervisor, "detected", self.attempt, role=proc.role, rank=proc.rank, how=how,
                 detail=f"injected fault {planned['id']}: exception", **proc.history.who)  # fmt: skip
        self.end(proc)
        return proc

    def end(self, proc: Proc) -> None:
        if proc.alive:
            self.say(self.supervisor, "killing", self.attempt, signal=9, why="recovery", **proc.history.who)
            self.exited(proc, 9)
        self.say(self.supervisor, "exit_confirmed", self.attempt, signal=9, code=None, **proc.history.who)

    def exited(self, proc: Proc, signal: int | None, code: int | None = None) -> None:
        proc.alive = False
        self.say(proc.launcher, "exited", None, signal=signal, code=code, **proc.history.who)
        self.say(proc.launcher, "closed")

    def recover(self, **choice: Any) -> None:
        self.pending = []
        self.begin(**choice)

    def damage(self, path: str, planned: dict[str, Any] | None = None) -> None:
        """Flips a bit of a file of the store; announced if a fault is given."""
        file = self.folder / "store" / path
        before = file.read_bytes()
        after = bytearray(before)
        after[len(after) // 2] ^= 1
        file.write_bytes(after)
        if planned is not None:
            self.receipt(planned, None, path=path, offset=len(after) // 2, before=files.bulk(before),
                         after=files.bulk(bytes(after)))  # fmt: skip

    def finish(self, finished: bool = True, released: bool = False) -> None:
        """released: the processes live on, and serve other runs."""
        for proc in self.procs:
            if proc.alive and proc.role == "rank":
                self.say(proc.history, "ended", self.attempt, rank=proc.rank, step=self.step)
        if finished:
            self.say(self.supervisor, "finished", self.attempt, step=self.step)
        self.close(released)

    def close(self, released: bool = False) -> None:
        for proc in self.procs:
            if proc.alive:
                self.say(proc.history, "closed")
                if released:
                    self.say(proc.launcher, "released", **proc.history.who)
                    self.say(proc.launcher, "closed")
                    continue
                self.say(
                    self.supervisor, "killing", None, signal=9, why="the run is over", **proc.history.who
                )
                self.exited(proc, 9)
        heads = [r.head for p in self.procs for r in (p.history, p.launcher)]
        self.say(self.supervisor, "closed", heads=heads)


def microbatch_of(name: str) -> int:
    """Of a checkpoint's name: s00000007-m0003-a0000 → 3, s00000007-a0000 → 0."""
    return int(name.split("-")[1][1:]) if "-m" in name else 0


def inside(microbatch: int) -> dict[str, int]:
    """As formats have it: left out at the boundary of a step."""
    return {"microbatch": microbatch} if microbatch else {}
def loss(step: int) -> str:
    """Of the update that was step `step`, from 1: lower every time."""
    return (1 / step).hex()


def ref(publish: dict[str, Any]) -> dict[str, Any]:
    return {key: publish[key] for key in ("name", "digest", "step")}


F0 = fault(
    0,
    0,
    "rank",
    1,
    "step.end",
    hit=5,
    gate={"role": "committer", "rank": None, "point": "commit.collected", "hit": 2},
)
F1 = fault(1, 1, "committer", None, "publish.before", hit=2)


def one_kill(folder: Path, edit: Edit = _nothing, **settings: Any) -> Simulation:
    """A rank is killed after step 5; the run finishes."""
    sim = Simulation(folder, Settings(faults=[F0], **settings), edit)
    sim.start()
    sim.train(5)
    sim.kill(F0)
    sim.recover()
    sim.train(sim.set.steps)
    sim.finish()
    return sim


def two_kills(folder: Path, edit: Edit = _nothing, **settings: Any) -> Simulation:
    """A rank is killed after step 5, the committer while the save of step 8 is in flight; the run finishes."""
    return killed_twice(Simulation(folder, Settings(faults=[F0, F1], **settings), edit))


S = TypeVar("S", bound=Simulation)


def killed_twice(sim: S) -> S:
    """The story of `two_kills`, in any simulation that plans F0 and F1."""
    sim.start()
    sim.train(5)
    sim.kill(F0)
    sim.recover()
    sim.train(7)
    sim.train(8, publish=False)
    sim.kill(F1)
    sim.recover()
    sim.train(sim.set.steps)
    sim.finish()
    return sim
