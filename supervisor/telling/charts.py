"""Two pictures as SVG: where the time went, and losses of a replay over the first pass. Pure; no style, no script, no link."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from supervisor.telling.say import clean, minutes, number

WIDTH, BAR, GAP = 720, 28, 6
COLOURS = ("#4c78a8", "#72b7b2", "#e45756", "#f58518", "#54a24b", "#b279a2", "#9d9da3")
"""Seven that can be told apart without colour vision by their order and label too (Vega's category10, rearranged)."""
POINTS_MAX = 2_000
"""More points than a screen has pixels are thinned out."""
Curve = Sequence[tuple[int, float | None]]
"""(step, loss); None where it was no finite number."""


def bar(parts: Sequence[tuple[str, float]]) -> str:
    """One stacked bar with a line of text below it for each part. `parts`: (name, seconds). Empty without any time."""
    total = math.fsum(seconds for _, seconds in parts)
    if not 0 < total < math.inf:
        return ""
    shapes, left = [], 0.0
    for index, (name, seconds) in enumerate(parts):
        wide = WIDTH * seconds / total
        fill = COLOURS[index % len(COLOURS)]
        shapes.append(f'<rect x="{left:.1f}" y="0" width="{wide:.1f}" height="{BAR}" fill="{fill}" stroke="#fff"/>')
        y = BAR + GAP + 18 * (index + 1)
        label = f"{clean(name, 40)} {minutes(seconds)} ({seconds / total:.0%})"
        shapes.append(f'<rect x="0" y="{y - 11}" width="12" height="12" fill="{fill}"/>')
        shapes.append(f'<text x="20" y="{y}">{escape(label)}</text>')
        left += wide
    told = "; ".join(f"{clean(name, 40)} {minutes(seconds)}" for name, seconds in parts)
    return _svg(BAR + GAP + 18 * (len(parts) + 1), f"Where the time went: {told}", shapes)


def losses(first: Curve, again: Curve) -> str:
    """Both curves on one scale: the first pass as a line, the replay as points. Empty where either has no number."""
    known = [[(s, v) for s, v in curve if v is not None and math.isfinite(v)] for curve in (first, again)]
    if not all(known):
        return ""
    values = [v for curve in known for _, v in curve]
    steps = [s for curve in known for s, _ in curve]
    low, high = min(values), max(values)
    begin, end = min(steps), max(steps)
    tall, left, base = 220, 60, 200
    if high - low > 1e300:  # no scale holds both
        return ""

    def place(step: int, value: float) -> str:
        x = left + (WIDTH - left - 10) * ((step - begin) / (end - begin) if end > begin else 0.5)
        y = 12 + (base - 12) * (1 - ((value - low) / (high - low) if high > low else 0.5))
        return f"{x:.1f},{y:.1f}"

    line = " ".join(place(s, v) for s, v in _thin(known[0]))
    dots = []
    for step, value in _thin(known[1]):
        x, y = place(step, value).split(",")
        dots.append(f'<circle cx="{x}" cy="{y}" r="2.5" fill="#e45756"/>')
    shapes = [
        f'<polyline points="{line}" fill="none" stroke="#4c78a8" stroke-width="1.5"/>',
        *dots,
        f'<text x="0" y="20">{high:.4g}</text>',
        f'<text x="0" y="{base}">{low:.4g}</text>',
        f'<text x="{left}" y="{tall - 2}">iteration {number(begin)}</text>',
        f'<text x="{WIDTH - 10}" y="{tall - 2}" text-anchor="end">{number(end)}</text>',
    ]
    told = f"Loss from iteration {number(begin)} to {number(end)}: line, the first pass; points, the replay"
    return _svg(tall + 4, told, shapes)


def _thin(curve: Curve) -> list[tuple[int, float]]:
    step = max(1, math.ceil(len(curve) / POINTS_MAX))
    return [(s, v) for s, v in curve[::step] if v is not None]


def _svg(height: int, told: str, shapes: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(told)}">'
    return head + f"<title>{escape(told)}</title>" + "".join(shapes) + "</svg>"
