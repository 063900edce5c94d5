"""A check as JUnit XML: one test case a trial, and one for the coverage, so that half a check never looks whole."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

from chaos.check.command import Checked
from chaos.check.order import Stage
from chaos.printable import printable
from chaos.sweep.results import Ending, Result

_SUITE = "killpoint"
_COVERAGE = "every point once"


def write_junit(path: Path, name: str, checked: Checked) -> None:
    """Writes the file. name: the experiment's, which is the class of every test case."""
    cases = []
    for each in checked.plan:
        result = checked.results.get(each.trial.name)
        if result is not None:
            cases.append(_trial(name, result))
        elif each.stage is Stage.ONCE:
            skipped = ElementTree.Element("skipped", message="not begun: see the coverage")
            cases.append(_case(name, each.trial.name, 0.0, skipped))
    sentences = list(checked.coverage.sentences())
    uncovered = None if checked.coverage.whole else ElementTree.Element("error", message="; ".join(sentences))
    cases.append(_case(name, _COVERAGE, 0.0, uncovered))
    properties = {
        "verdict": checked.verdict,
        "points": f"{checked.coverage.points_struck} of {checked.coverage.points_passed}",
        "passages": f"{checked.coverage.passages_struck} of {checked.coverage.passages_passed}",
        "coverage": "; ".join(sentences),
    }
    _write(path, cases, checked.coverage.spent_s, properties)


def write_error(path: Path, name: str, message: str) -> None:
    """Of a check that could not be made."""
    error = ElementTree.Element("error", message=_safe(message))
    _write(path, [_case(name, _COVERAGE, 0.0, error)], 0.0, {"verdict": "unknown"})


def _trial(name: str, result: Result) -> ElementTree.Element:
    if result.good:
        return _case(name, result.trial, result.duration_s, None)
    wrong = result.ending is Ending.INVALID or result.predicted is False
    element = ElementTree.Element("failure" if wrong else "error", message=_safe(result.why))
    element.text = _safe(f"{result.ending.value}: {result.why}\nreproduce: {result.reproduce}")
    return _case(name, result.trial, result.duration_s, element)


def _case(name: str, trial: str, seconds: float, outcome: ElementTree.Element | None) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=f"{_SUITE}.{name}", name=_safe(trial), time=f"{seconds:.3f}")
    if outcome is not None:
        case.append(outcome)
    return case


def _write(path: Path, cases: Iterable[ElementTree.Element], seconds: float, properties: dict[str, str]) -> None:
    cases = list(cases)
    counts = {
        f"{kind}{'' if kind == 'skipped' else 's'}": str(sum(1 for case in cases if case.find(kind) is not None))
        for kind in ("failure", "error", "skipped")
    }
    suite = ElementTree.Element("testsuite", name=_SUITE, tests=str(len(cases)), time=f"{seconds:.3f}", attrib=counts)
    listed = ElementTree.SubElement(suite, "properties")
    for key, value in properties.items():
        ElementTree.SubElement(listed, "property", name=key, value=_safe(value))
    suite.extend(cases)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _safe(text: str) -> str:
    """Control characters have no place in XML."""
    shown: str = printable(text)
    return shown
