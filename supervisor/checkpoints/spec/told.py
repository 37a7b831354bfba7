"""A comparison and a document, item by item, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any, Final

from supervisor.checkpoints.spec.compare import BASELINE, Comparison
from supervisor.checkpoints.spec.document import Document
from supervisor.checkpoints.spec.held import Held
from supervisor.checkpoints.spec.items import Item, State, form

ORIGINS: Final = {
    "megatron-arguments": "from Megatron's arguments",
    "arguments-in-save": "from the arguments that a save holds",
    "training-script": "from the training script",
    "baseline": "baseline, not from configuration",
}
_STYLES: Final = {State.AGREES: "green", State.UNSAID: "cyan", State.UNREAD: "yellow"}
_KINDS: Final = ("coverage", "tensor", "bucket", "object", "need", "setting")


def answer(comparison: Comparison, document: Document) -> dict[str, Any]:
    """JSON of a comparison: counts, and every item that does not agree."""
    return {
        "origin": document.origin,
        "digest": document.digest,
        "known": comparison.known,
        "counts": {state.value: count for state, count in comparison.counts.items()},
        "items": [_row(item) for item in comparison.items if item.state is not State.AGREES],
    }


def _row(item: Item) -> dict[str, str]:
    return {
        "kind": item.kind,
        "name": item.name,
        "state": item.state.value,
        "expected": item.expected,
        "found": item.found,
    }


def lines(comparison: Comparison, document: Document, *, every: bool) -> Iterable[tuple[str, str, str]]:
    """Mark, style and text of each line: counts first, then the differences, then (`every`) what agrees, by kind."""
    yield "SPEC", "bold", _head(comparison, document)
    if document.origin == "baseline":
        yield "BASELINE", "cyan", BASELINE
    if not comparison.known:
        return
    for kind in _KINDS:
        counts = _counted([item for item in comparison.items if item.kind == kind])
        if counts:
            yield "", "", f"{kind}: {counts}"
    for item in comparison.differences:
        yield item.state.value.upper(), "red", _sentence(item)
    for state in (State.UNREAD, State.UNSAID):
        names = [item.name for item in comparison.items if item.state is state]
        if names:
            yield state.value.upper(), _STYLES[state], ", ".join(map(_clean, names))
    if every:
        for item in sorted(
            (i for i in comparison.items if i.state is State.AGREES), key=lambda i: _KINDS.index(i.kind)
        ):
            yield "", "green", _sentence(item)


def _head(comparison: Comparison, document: Document) -> str:
    if not comparison.known:
        return f"{ORIGINS[document.origin]}: nothing of the save could be read, so nothing was compared"
    return f"{ORIGINS[document.origin]}, {len(comparison.items):,} items: {_counted(comparison.items)}"


def _counted(items: Iterable[Item]) -> str:
    states = [item.state for item in items]
    return ", ".join(f"{states.count(state):,} {state.value}" for state in State if state in states)


def _sentence(item: Item) -> str:
    head = f"{item.kind} {_clean(item.name)}"
    match item.state:
        case State.AGREES:
            return f"{head}: {_clean(item.found or item.expected)}".rstrip(": ")
        case State.MISSING:
            return f"{head}: must be {_clean(item.expected)}" if item.expected else head
        case State.UNEXPECTED:
            return f"{head}: {_clean(item.found)}".rstrip(": ")
        case _:
            return f"{head}: {_clean(item.found)}, must be {_clean(item.expected)}"


def holding(held: Held) -> Iterable[tuple[str, str, str]]:
    """What a save holds, item by item."""
    total = sum(prod(shape) for _, shape in held.tensors.values())
    yield "HOLDS", "bold", f"{len(held.tensors):,} tensors of {total:,} elements, {len(held.objects):,} objects"
    for name, (dtype, shape) in sorted(held.tensors.items()):
        yield "", "", f"tensor {_clean(name)}: {form(dtype, shape)}"
    for name in sorted(held.objects):
        yield "", "", f"object {_clean(name)}"
    for place, value in sorted((held.facts or {}).items()):
        yield "", "", f"value {_clean(place)}: {_clean(str(value))}"


def asking(document: Document) -> Iterable[tuple[str, str, str]]:
    """What a document asks of a save, item by item."""
    yield "SPEC", "bold", f"{ORIGINS[document.origin]}, {document.digest[:12]}: {summary(document)}"
    for key, text in document.about.items():
        yield "", "", f"{_clean(key)}: {_clean(text)}"
    for entry in document.tensors:
        yield "", "", f"tensor {_clean(entry.name)}: {form(entry.dtype, entry.shape)}, {entry.role}"
    for group in document.flat:
        most = f"{group.least:,}" if group.least == group.most else f"{group.least:,} to {group.most:,}"
        yield "", "", f"buckets {_clean(group.prefix)}: {most} {group.dtype} elements of {', '.join(group.kinds)}"
    for name in document.objects:
        yield "", "", f"object {_clean(name)}"
    for name in document.optional:
        yield "", "", f"may hold {_clean(name)}"
    for need in document.needs:
        yield "", "", f"need {_clean(need.question)}: {' or '.join(map(_clean, need.any_of))}"
    for place, value in document.settings.items():
        yield "", "", f"setting {_clean(place)}: {_clean(str(value))}"
    if document.ignored:
        yield "", "", f"plays no part: {', '.join(map(_clean, document.ignored))}"


def summary(document: Document) -> str:
    """Counts of a document."""
    weights = sum(prod(entry.shape) for entry in document.tensors if entry.role == "weight")
    flat = f", {len(document.flat):,} flat groups" if document.flat else ""
    return (
        f"{len(document.tensors):,} tensors ({weights:,} elements of weights){flat}, {len(document.objects):,} objects, "
        f"{len(document.needs)} needs, {len(document.settings)} settings"
    )


def show(rows: Iterable[tuple[str, str, str]]) -> None:
    """Print lines, with colours on a terminal."""
    from rich.console import Console  # noqa: PLC0415 - a program that asks for JSON need not wait for it
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False, soft_wrap=True)
    for mark, style, text in rows:
        console.print(Text.assemble((f"{mark} " if mark else "  ", style), text))


def _clean(text: str) -> str:
    """For a terminal: names in a hostile save may hold its control sequences."""
    return "".join(char if char.isprintable() else "?" for char in text[:400])
