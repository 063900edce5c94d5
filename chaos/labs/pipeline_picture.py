"""A timeline as two rows, what is prepared above what is trained: in text for a terminal, or as an SVG file's text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from rich.text import Text

from chaos.labs.pipeline_model import Timeline

_STYLES = ("black on cyan", "black on yellow", "black on magenta", "black on green")
_IDLE = "·"
_LABEL_COLUMNS = 10
_TICK_CELLS = 10
_COLOURS = ("#56b4e9", "#e69f00", "#cc79a7", "#009e73")  # told apart by most colour-blind readers too
_LEFT, _WIDTH, _ROW, _GAP, _TOP = 80, 880, 34, 14, 40

_Bars = Sequence[tuple[int, int]]


def ms(time_us: int | Fraction) -> str:
    """`46` for 46000, `9.5` for 9500: milliseconds with as many digits as they need."""
    return f"{float(time_us) / 1000:.3f}".rstrip("0").rstrip(".")


def _rows(timeline: Timeline) -> tuple[tuple[str, _Bars], ...]:
    return (
        ("prepare", [(p.prepare_start_us, p.prepare_end_us) for p in timeline.passages]),
        ("train", [(p.train_start_us, p.train_end_us) for p in timeline.passages]),
    )


def _cell_us(total_us: int, cells: int) -> int:
    """The least of 1, 2, 5, 10, 20, … µs with which `total_us` fits into so many cells."""
    power = 1
    while True:
        for size in (power, 2 * power, 5 * power):
            if size * cells >= total_us:
                return size
        power *= 10


def timeline_text(timeline: Timeline, columns: int) -> Text:
    """Two rows and an axis of at most `columns` columns. A cell shows the batch's last digit, or a dot for idle.

    A cell stands for what was going on in its middle.
    """
    cells = max(_TICK_CELLS, columns - _LABEL_COLUMNS)
    cell_us = _cell_us(max(1, timeline.total_us), cells)
    used = -(-timeline.total_us // cell_us)
    text = Text()
    for label, bars in _rows(timeline):
        text.append(f"{label:<{_LABEL_COLUMNS}}")
        for batch in _cells(bars, cell_us, used):
            text.append(_IDLE, "dim") if batch is None else text.append(
                str(batch % 10), _STYLES[batch % len(_STYLES)]
            )
        text.append("\n")
    axis = "".join(f"{ms(cell * cell_us):<{_TICK_CELLS}}" for cell in range(0, used + 1, _TICK_CELLS))
    return text.append(f"{'ms':<{_LABEL_COLUMNS}}{axis.rstrip()}")


def _cells(bars: _Bars, cell_us: int, used: int) -> Iterator[int | None]:
    """The batch of each cell. `bars` are in order, but with several data workers they may overlap: the first counts."""
    for cell in range(used):
        twice_middle_us = (2 * cell + 1) * cell_us
        found = (b for b, (start_us, end_us) in enumerate(bars) if 2 * start_us <= twice_middle_us < 2 * end_us)
        yield next(found, None)


def timeline_svg(timeline: Timeline, title: str) -> str:
    """An SVG picture of its own, without scripts and references. `title` is plain ASCII without markup."""
    total_us = max(1, timeline.total_us)
    scale = _WIDTH / total_us
    height = _TOP + 2 * (_ROW + _GAP) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 20}" height="{height}" '
        'font-family="sans-serif" font-size="13">',
        f"<title>{title}</title>",
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="22">{title}</text>',
    ]
    for row, (label, bars) in enumerate(_rows(timeline)):
        y = _TOP + row * (_ROW + _GAP)
        parts.append(f'<text x="10" y="{y + 22}">{label}</text>')
        parts += [_bar(batch, start_us, end_us, y, scale) for batch, (start_us, end_us) in enumerate(bars)]
    parts += _axis(total_us, scale, _TOP + 2 * (_ROW + _GAP))
    return "\n".join([*parts, "</svg>", ""])


def _bar(batch: int, start_us: int, end_us: int, y: int, scale: float) -> str:
    x, width = _LEFT + start_us * scale, (end_us - start_us) * scale
    label = f'<text x="{x + width / 2:.2f}" y="{y + 22}" text-anchor="middle">{batch}</text>' if width > 20 else ""
    return (
        f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_ROW}" fill="{_COLOURS[batch % len(_COLOURS)]}" '
        f'stroke="white"><title>batch {batch}: {ms(start_us)} to {ms(end_us)} ms</title></rect>{label}'
    )


def _axis(total_us: int, scale: float, y: int) -> Iterator[str]:
    yield f'<line x1="{_LEFT}" y1="{y}" x2="{_LEFT + _WIDTH}" y2="{y}" stroke="black"/>'
    tick_us = _cell_us(total_us, 10)
    for at_us in range(0, total_us + 1, tick_us):
        x = _LEFT + at_us * scale
        yield f'<line x1="{x:.2f}" y1="{y}" x2="{x:.2f}" y2="{y + 5}" stroke="black"/>'
        yield f'<text x="{x:.2f}" y="{y + 20}" text-anchor="middle">{ms(at_us)}</text>'
    yield f'<text x="10" y="{y + 20}">ms</text>'
