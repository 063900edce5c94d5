"""What the workload raises is told with type, message, file, line and step; what comes again is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainers.blame import blamed, described, place_of, repeated
from trainers.errors import Interrupted, TrainingError, WorkloadRaised
from trainers.workload import load_builder

SOURCE = """\
def build(config):
    return broken(config)

def broken(config):
    return int(config)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


def raised(file: Path, argument: object) -> BaseException:
    builder = load_builder(f"{file}:build")
    with pytest.raises(Exception) as caught:  # noqa: PT011
        builder(argument)  # type: ignore[arg-type]
    return caught.value


def test_the_innermost_frame_of_the_file_is_named(file: Path) -> None:
    assert place_of(raised(file, "x"), [file]) == "mine.py:5"


def test_without_a_frame_of_the_file_it_is_the_innermost_of_all(file: Path) -> None:
    assert place_of(raised(file, "x"), [file.with_name("other.py")]) == f"{file}:5"
    assert place_of(ValueError("never raised"), [file]) == "no frame"


def test_a_message_is_one_line_of_bounded_length() -> None:
    assert described(ValueError("two\n  lines")) == "ValueError: two lines"
    assert described(ValueError()) == "ValueError"
    assert len(described(ValueError("word " * 1000))) < 600


def test_an_exception_of_the_workload_is_put_into_words(file: Path) -> None:
    with pytest.raises(WorkloadRaised) as caught, blamed(lambda: [file], lambda: 4, (TrainingError,)):
        load_builder(f"{file}:build")("x")  # type: ignore[arg-type]
    assert str(caught.value) == (
        "ValueError: invalid literal for int() with base 10: 'x' (mine.py:5, in step 5)"
    )


def test_what_is_our_own_stays_what_it_is(file: Path) -> None:
    with pytest.raises(Interrupted, match="a peer is gone"), blamed(lambda: [file], lambda: 4, (TrainingError,)):
        raise Interrupted("a peer is gone")


def test_the_same_type_place_and_step_is_a_repetition() -> None:
    first = WorkloadRaised("KeyError: 1", "mine.py:5", 3, "KeyError")
    again = WorkloadRaised("KeyError: 2", "mine.py:5", 3, "KeyError")
    assert repeated([None, first], [Interrupted("x"), again]) is again
    others = [
        WorkloadRaised("KeyError: 1", "mine.py:5", 4, "KeyError"),
        WorkloadRaised("KeyError: 1", "mine.py:6", 3, "KeyError"),
        WorkloadRaised("ValueError: 1", "mine.py:5", 3, "ValueError"),
    ]
    for other in others:
        assert repeated([first], [other]) is None
    assert repeated([None], [None]) is None
