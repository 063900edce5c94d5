"""Whether there is a kill point between any two durable operations of a thread, by what the kernel saw.

    python tests/chaos/durable.py          the storage code by its real classes, without Ray: seconds
    python tests/chaos/durable.py --run    every process of `killpoint points --record`: a run, and one that is killed

Exit status: 0 complete, 1 a point is missing, 2 it could not be traced. Needs Linux and strace. It ends with the two
operations of every gap and, without Ray, the lines of Python that they come from.

A *durable operation* is a system call that succeeds on a path below a store and changes it, or makes a change last:
create, write, sync, link (and rename), unlink, folder. C code is seen as Python code is. What would pass this trace
unseen, a file of a store mapped for writing, or io_uring in a process that does something here, is traced as well and
fails the check. Excepted is the ring in which libuv, which runs Ray's event loops, hands over what it polls: it is told
by its size and flag, and libuv's ring for files is turned off. The passage of a kill point is a line that is written to
a file of its own, so that the kernel puts it into the same order.

Two operations that follow one another in one thread are *one* operation in these cases, and in no other, because
nothing that a recovery could observe differs between them:

- Writes to one file. Until it is synced and named by a manifest or by its link it is a stray of any length, and no
  reader looks at it; the code passes a point in the middle (`shard.half`) all the same.
- Two syncs, of which at most one has something of this thread's own to make last. The other one is a reader's: the
  log's readers sync its folder before each reading, and that of the manifests where the log is empty.
- Making a folder, and whatever follows it. To every reader an empty folder is the same as none, and the syncs of the
  store's root, which holds only the names of folders, go with it.

Threads are looked at one by one, and in each the stores of several runs one by one: a kill strikes at a point of one
thread, and what the others do meanwhile is held in place by gates, not by points.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MARKS_ENV = "KILLPOINT_TRACED_MARKS"  # the file to which passages are written
MARKS = "passages.marks"
_CALLS = {
    "create": "open openat openat2 creat mknod mknodat symlink symlinkat",
    "write": "write pwrite64 writev pwritev pwritev2 sendfile copy_file_range fallocate truncate ftruncate",
    "sync": "fsync fdatasync sync_file_range sync syncfs msync",
    "link": "link linkat rename renameat renameat2",
    "unlink": "unlink unlinkat rmdir",
    "folder": "mkdir mkdirat",
    "unseen": "mmap io_uring_setup io_submit",
    "thread": "clone clone3",
}
_KIND = {call: kind for kind, calls in _CALLS.items() for call in calls.split()}
_STRACE = ["strace", "-f", "--seccomp-bpf", "-y", "-qq", "-s", "400", "-e", f"trace={','.join(_KIND)}", "-e",
           "signal=none"]  # fmt: skip
_LINE = re.compile(r"(\d+) +(.*)")
_RESUMED = re.compile(r"<\.\.\. (\w+) resumed>(.*)")
_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+|\?|0x[0-9a-f]+)(.*)", re.DOTALL)
_POLLS = re.compile(r"256, \{flags=(0|IORING_SETUP_NO_SQARRAY|0x10000\b)")  # uv__platform_loop_init() in libuv 1.49
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_DESCRIPTOR = re.compile(r"\d+<([^>]*)>")


class CannotTrace(Exception):
    """There is no trace to judge."""


@dataclass(frozen=True)
class Passage:
    """A thread came by a kill point. who: rank0, committer, … with the attempt."""

    thread: int
    who: str
    point: str

    def __str__(self) -> str:
        return f"· {self.point}"


@dataclass(frozen=True)
class Operation:
    """A durable operation. path: below the traced folder; origin: lines of Python that it is from, innermost first."""

    thread: int
    kind: str
    path: str
    origin: str = ""

    @property
    def store(self) -> str:
        """Whose operation it is, below the traced folder."""
        return re.split(r"(?<=\bstore)(?:/|$)", self.path, maxsplit=1)[0]

    def __str__(self) -> str:
        return f"{self.kind:7}{self.path}"


@dataclass(frozen=True)
class Missing:
    """Two operations with no point between them, and the last point before them."""

    first: Operation
    second: Operation
    after: str
    who: str

    def __str__(self) -> str:
        lines = [f"{self.who}, after {self.after}: no point between"]
        for each in (self.first, self.second):
            lines.append(f"    {each}" + (f"\n      from {each.origin}" if each.origin else ""))
        return "\n".join(lines)


Event = Passage | Operation


@dataclass
class Trace:
    """What was seen: each thread's events in order."""

    threads: dict[int, list[Event]] = field(default_factory=dict)

    @property
    def operations(self) -> list[Operation]:
        return [each for events in self.threads.values() for each in events if isinstance(each, Operation)]

    @property
    def passages(self) -> list[Passage]:
        return [each for events in self.threads.values() for each in events if isinstance(each, Passage)]


def parse(lines: Iterable[str], folder: str) -> Trace:
    """The events of a trace by strace in every `store` below the folder.

    Raises CannotTrace for what could have changed a store unseen.
    """
    stores = re.compile(rf"{re.escape(folder)}/((?:.+/)?store(?:/.*)?)")
    trace, origins, begun_by, rings = Trace(), dict[int, str](), dict[int, int](), dict[int, str]()
    for thread, call, arguments, result, rest in _calls(lines):
        if result.startswith("-") or result == "?":
            continue
        kind = _KIND[call]
        if kind == "thread":
            if "CLONE_THREAD" in arguments:
                begun_by[int(result)] = thread
            continue
        paths = _paths(call, arguments, rest)
        if call == "write" and paths and paths[0].endswith(f"/{MARKS}"):
            word, _, text = _QUOTED.findall(arguments)[-1].removesuffix("\\n").partition(" ")
            if word == "from":
                origins[thread] = text
            else:
                trace.threads.setdefault(thread, []).append(Passage(thread, word, text))
            continue
        inside = [found[1] for path in paths if (found := stores.fullmatch(path))]
        if kind == "unseen" and call != "mmap":
            if not _POLLS.match(arguments):
                rings[thread] = f"{call}({arguments:.60}"
        elif kind == "unseen" and inside and "PROT_WRITE" in arguments and "MAP_SHARED" in arguments:
            raise CannotTrace(f"{call}({arguments}) may change a store without another system call")
        changes = kind not in ("create", "unseen") or "O_CREAT" in arguments or "O_TRUNC" in arguments
        if inside and (changes or call not in ("open", "openat", "openat2", "mmap")):
            path = inside[-1]
            if path.endswith("store"):
                kind = "folder"
            trace.threads.setdefault(thread, []).append(Operation(thread, kind, path, origins.pop(thread, "")))
    active = {_process(thread, begun_by) for thread in trace.threads}
    for thread, call in rings.items():
        if _process(thread, begun_by) in active:
            raise CannotTrace(f"thread {thread}: {call}…: what it submits that way is no system call of its own")
    return trace


def _process(thread: int, begun_by: Mapping[int, int]) -> int:
    """The first thread of the process that the thread belongs to."""
    while thread in begun_by:
        thread = begun_by[thread]
    return thread


def _calls(lines: Iterable[str]) -> Iterator[tuple[int, str, str, str, str]]:
    """(thread, call, arguments, result, what follows it) of every call that returned, in the order of returning."""
    begun: dict[int, str] = {}
    for line in lines:
        found = _LINE.match(line)
        if found is None:
            raise CannotTrace(f"this is no line of strace: {line!r}")
        thread, text = int(found[1]), found[2]
        if text.startswith(("+++", "---")):
            begun.pop(thread, None)
            continue
        if text.endswith("<unfinished ...>"):
            begun[thread] = text.removesuffix("<unfinished ...>").rstrip()
            continue
        if resumed := _RESUMED.match(text):
            text = begun.pop(thread, f"{resumed[1]}(") + resumed[2]
        if call := _CALL.match(text):
            yield thread, call[1], call[2], call[3], call[4]


def _paths(call: str, arguments: str, rest: str) -> list[str]:
    """Every path that the call names: of descriptors for calls that take one, else of its strings."""
    if _KIND[call] in ("write", "sync", "unseen") and call != "truncate":
        return _DESCRIPTOR.findall(arguments)
    if call in ("open", "openat", "openat2", "creat"):
        return re.findall(r"^<([^>]*)>", rest)  # as the kernel resolved it
    folders, names = _DESCRIPTOR.findall(arguments), _QUOTED.findall(arguments)
    return [name if name.startswith("/") else os.path.join(folders[-1] if folders else "", name) for name in names]


@dataclass
class _Unsynced:
    """What one thread has changed and not synced since: files, and folders in which a name came or went."""

    paths: set[str] = field(default_factory=set)

    def after(self, operation: Operation) -> bool:
        """Takes in the operation; of a sync, whether it had anything to make last."""
        path, folder = operation.path, str(Path(operation.path).parent)
        if operation.kind == "sync":
            known = path in self.paths
            self.paths.discard(path)
            return known
        self.paths |= {path, folder} if operation.kind == "create" else {path if operation.kind == "write" else folder}
        return False


def same(first: Operation, second: Operation, own_syncs: tuple[bool, bool]) -> bool:
    """Whether the two are one operation to a recovery; the module says why. own_syncs: had they anything to sync."""
    if first.kind == "folder":
        return True
    if first.kind == second.kind == "sync":
        return not all(own_syncs)
    return first.kind == second.kind == "write" and first.path == second.path


def missing(trace: Trace) -> list[Missing]:
    """Every two operations that follow one another in a thread with no passage between, each pair of kinds once."""
    found: dict[tuple[str, ...], Missing] = {}
    for events in trace.threads.values():
        before: dict[str, tuple[Operation, bool]] = {}  # by store
        unsynced, after, who = _Unsynced(), "the start", "a thread without points"
        for event in events:
            if isinstance(event, Passage):
                before, after, who = {}, event.point, event.who
                continue
            own, last = unsynced.after(event), before.get(event.store)
            if last is not None and not same(last[0], event, (last[1], own)):
                kinds = (each.kind + Path(each.path).parent.name for each in (last[0], event))
                key = (who.partition("@")[0].rstrip("0123456789"), after, *kinds)
                found.setdefault(key, Missing(last[0], event, after, who))
            before[event.store] = event, own
    return list(found.values())


def traced(command: list[str], folder: Path, deadline_s: float, environment: Mapping[str, str] = os.environ) -> Trace:
    """Runs the command under strace and looks at `folder`. Raises CannotTrace if that fails, or the command does."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**environment, MARKS_ENV: str(folder / MARKS), "OMP_NUM_THREADS": "1", "UV_USE_IO_URING": "0"}
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "strace.out"
        try:
            done = subprocess.run(
                [*_STRACE, "-o", str(output), *command], env=environment, capture_output=True, text=True,
                timeout=deadline_s, check=False,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise CannotTrace("strace is not installed: this check needs it (apt install strace)") from error
        except subprocess.TimeoutExpired as error:
            raise CannotTrace(f"{command}: has not ended after {deadline_s:g} s") from error
        if done.returncode:
            raise CannotTrace(f"{command}: ended with status {done.returncode}\n{done.stdout}\n{done.stderr}")
        return parse(output.read_text(errors="replace").splitlines(), str(folder))


def trace_storage(folder: Path, deadline_s: float = 120.0) -> Trace:
    """The storage code of a rank, the committer and the supervisor, by their real classes, in one process."""
    program = HERE / "traced" / "storage_code.py"
    tests = [ROOT, ROOT / "tests" / "trainers", ROOT / "tests" / "storage"]
    return traced([sys.executable, str(program), str(folder)], folder, deadline_s, _with_path(*tests))


def trace_runs(folder: Path, deadline_s: float = 300.0) -> Trace:
    """Every process of two real runs on a Ray of their own: one undisturbed, one killed and recovered."""
    command = [sys.executable, "-m", "chaos.cli", "points", "--record", "--output", str(folder / "runs"), "--json"]
    return traced(command, folder, deadline_s, _with_path(HERE / "traced" / "everywhere", ROOT))


def _with_path(*folders: Path) -> dict[str, str]:
    inherited = os.environ.get("PYTHONPATH")
    path = [*map(str, folders), *([inherited] if inherited else [])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def show(trace: Trace) -> str:
    """The sequence of every thread that did something durable."""
    lines = []
    for thread, events in trace.threads.items():
        if any(isinstance(each, Operation) for each in events):
            names = sorted({each.who for each in events if isinstance(each, Passage)})
            lines += [f"thread {thread} ({', '.join(names)})", *(f"  {each}" for each in events)]
    return "\n".join(lines)


def main() -> int:
    """The command."""
    real = sys.argv[1:] == ["--run"]
    with tempfile.TemporaryDirectory(prefix="killpoint-") as scratch:
        try:
            trace = (trace_runs if real else trace_storage)(Path(scratch).resolve())
        except CannotTrace as error:
            print(error, file=sys.stderr)
            return 2
    print(show(trace))
    gaps, threads = missing(trace), len({each.thread for each in trace.operations})
    seen = f"{len(trace.operations)} durable operations of {threads} threads, {len(trace.passages)} passages"
    print(f"\n{seen}: " + (f"{len(gaps)} gaps" if gaps else "a point between any two"))
    print("\n".join(map(str, gaps)))
    return 1 if gaps or not trace.operations else 0


if __name__ == "__main__":
    sys.exit(main())
