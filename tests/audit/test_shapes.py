"""Lines read by a pattern beside the decoder: the same values, or none where the bytes are not the one encoding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import audit_files as files
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.audit.events import StepDone
from chaos.audit.formats import canonical
from chaos.audit.read_history import read_history
from chaos.audit.shapes import Shape

BODY = {
    "event": "step", "rank": 1, "loss": "0x1p+0", "skipped": False, "lr": ["a", "b"], "state": {"m": "1", "a": "2"},
    "wait_s": 0.25, "note": None,
}  # fmt: skip
FIELDS: list[Any] = [("rank",), ("loss",), ("skipped",), ("lr", 1), ("state", "m")]


def read(body: dict[str, Any]) -> Any:
    return values(canonical(body))


def values(line: bytes) -> Any:
    return Shape(BODY, FIELDS, ("event",)).values(b"<" + line + b">", 1, len(line) + 1)


def test_values_come_in_the_order_asked_for() -> None:
    assert read(BODY) == (b"1", b"0x1p+0", b"false", b"b", b"1")
    other = {**BODY, "rank": -12, "loss": "", "skipped": True, "wait_s": 4.6e-05, "state": {"m": "~", "a": " "}}
    assert read(other) == (b"-12", b"", b"true", b"b", b"~")


@pytest.mark.parametrize(
    "change",
    [
        {"event": "stop"}, {"rank": "1"}, {"rank": 1.0}, {"rank": 10**18}, {"rank": None}, {"rank": True}, {"loss": 1},
        {"loss": 'a"b'}, {"loss": "a\\b"}, {"loss": "é"}, {"loss": "a\n"}, {"skipped": 0}, {"lr": ["a"]}, {"lr": "ab"},
        {"lr": ["a", "b", "c"]}, {"state": {"m": "1"}}, {"state": {"m": "1", "b": "2"}}, {"wait_s": 1}, {"more": 1},
        {"note": 0},
    ],
)  # fmt: skip
def test_another_body_is_of_another_shape(change: dict[str, Any]) -> None:
    assert read({**BODY, **change}) is None


@pytest.mark.parametrize(
    ("part", "by"),
    [
        (b'"rank":1', b'"rank":01'), (b'"rank":1', b'"rank":+1'), (b'"rank":1', b'"rank":-0'), (b"0.25", b"0.250"),
        (b"0.25", b"25e-2"), (b"0.25", b"00.25"), (b"0.25", b"0"), (b'"rank":1', b'"rank": 1'),
        (b'"note":null,', b""), (b'"rank":1', b'"rank":1,"rank":1'), (b"a", b"\\u0061"),
    ],
)  # fmt: skip
def test_another_encoding_is_of_no_shape(part: bytes, by: bytes) -> None:
    line = canonical(BODY)
    assert part in line
    assert values(line.replace(part, by, 1)) is None


_TEXTS = st.text(st.characters(max_codepoint=0x200), max_size=6)
_VALUES = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), _TEXTS, st.booleans(), st.none())


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(_TEXTS, _VALUES, max_size=5), st.dictionaries(_TEXTS, _VALUES, max_size=5))
def test_whatever_is_accepted_is_canonical_and_has_these_values(one: dict[str, Any], other: dict[str, Any]) -> None:
    keys = [key for key in one if isinstance(one[key], (str, int))]
    if not keys:
        return
    shape = Shape(one, [(keys[0],), (keys[-1],)], ())
    for body in (one, other, {**one, **other}):
        line = canonical(body)
        found = shape.values(line, 0, len(line))
        if found is not None:
            wanted = [body[key] for key in (keys[0], keys[-1])]
            assert [json.loads(v) if not isinstance(w, str) else v.decode() for v, w in zip(found, wanted, strict=True)
                    ] == wanted  # fmt: skip


def steps(folder: Path, count: int) -> Path:
    """A worker's history with this many steps, every third of another shape."""
    recorder = files.Recorder(folder, "worker", 7, 70, "r", 1)
    for step in range(1, count + 1):
        extra = {"wait_s": step / 7} if step % 3 else {"wait_s": None, "more": ["x", {"y": 1}]}
        recorder.record(
            "step", None if step == 4 else 0, step, rank=0, step=step, loss="é" if step == 5 else (1 / step).hex(),
            lr=["1"] * (1 + step % 2), gradient_norm="2", state={"model": f"{step:016x}"}, samples_seen=step * 8,
            ids="xxh3-128:0", skipped=step == 6, **extra,
        )  # fmt: skip
    return recorder.path


def test_steps_of_any_shape_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = steps(tmp_path, 30)
    history, _, _ = read_history(tmp_path)
    (file,) = history.files.values()
    assert (file.problem, len(file.chains), file.advances, len(file.events)) == (None, 31, True, 1)
    for event, body in zip(history.by_kind[StepDone], files.bodies(path)[1:], strict=True):
        done = event.what
        assert (event.file, event.n, event.t_ns, event.clock) == (path.name, body["step"], body["t_ns"], body["clock"])
        assert event.attempt == body["attempt"]
        assert done == StepDone(
            body["rank"], body["step"], body["loss"], tuple(body["lr"]), body["gradient_norm"], body["state"],
            body["samples_seen"], body["ids"], body["skipped"],
        )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_changed_byte_of_a_step_is_believed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = steps(tmp_path_factory.mktemp("h"), 12)
    text = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(text) - 2))
    text[at] ^= data.draw(st.integers(1, 255))
    line = bytes(text[:at]).count(b"\n")
    path.write_bytes(text)
    (file,) = read_history(path.parent)[0].files.values()
    assert file.problem is not None
    assert file.problem.startswith(f"line {line + 1}:")
    assert len(file.chains) <= line
    assert [event.n for event in file.steps] == list(range(1, line))


def test_a_step_that_is_taken_out_or_moved_breaks_the_chain(tmp_path: Path) -> None:
    path = steps(tmp_path, 12)
    lines = path.read_bytes().splitlines(keepends=True)
    for changed in ([*lines[:5], *lines[6:]], [*lines[:5], lines[6], lines[5], *lines[7:]], [*lines[:6], *lines[5:]]):
        path.write_bytes(b"".join(changed))
        (file,) = read_history(tmp_path)[0].files.values()
        assert file.problem is not None
        assert "does not continue the chain" in file.problem


@pytest.mark.parametrize("step", [2, 9])
def test_a_number_that_no_column_holds_ends_what_is_believed(tmp_path: Path, step: int) -> None:
    path = steps(tmp_path, 12)
    bodies = files.bodies(path)
    bodies[step]["samples_seen"] = 1 << 63
    files.rechain(path, bodies)
    (file,) = read_history(tmp_path)[0].files.values()
    assert file.problem == f"line {step + 1}: samples_seen is out of range"


@pytest.mark.parametrize("step", [2, 9, 12])
def test_a_clock_that_stands_still_among_steps_is_seen(tmp_path: Path, step: int) -> None:
    path = steps(tmp_path, 12)
    bodies = files.bodies(path)
    bodies[step]["clock"] -= 1
    files.rechain(path, bodies)
    (file,) = read_history(tmp_path)[0].files.values()
    assert (file.problem, file.advances) == (None, False)
