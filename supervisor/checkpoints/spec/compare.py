"""What must be there beside what is there, item by item and in both directions. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import translate
from math import prod
from re import compile as pattern
from typing import Any, Final

from supervisor.checkpoints.reading.findings import Finding
from supervisor.checkpoints.spec import buckets
from supervisor.checkpoints.spec.document import STATES, Document, Role
from supervisor.checkpoints.spec.held import Held
from supervisor.checkpoints.spec.items import Item, State, form

CODES: Final[Mapping[State, str]] = {
    State.MISSING: "SPEC_MISSING",
    State.UNEXPECTED: "SPEC_UNEXPECTED",
    State.DTYPE: "SPEC_DTYPE",
    State.SHAPE: "SPEC_SHAPE",
    State.COVERAGE: "SPEC_COVERAGE",
    State.DIFFERS: "SPEC_DIFFERS",
    State.UNSAID: "SPEC_UNSAID",
}
BASELINE: Final = "the spec was taken from a save, not from the configuration: what that one lacked, this one may lack"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every item. `known` False: nothing of the save could be read, so there was nothing to compare."""

    items: tuple[Item, ...]
    baseline: bool
    known: bool = True

    @property
    def counts(self) -> Mapping[State, int]:
        """How many items stand how."""
        return Counter(item.state for item in self.items)

    @property
    def differences(self) -> tuple[Item, ...]:
        """All items that weigh."""
        return tuple(i for i in self.items if i.state not in {State.AGREES, State.UNSAID, State.UNREAD})

    def findings(self) -> tuple[Finding, ...]:
        """The same, for a check of the save."""
        if not self.known:
            return (Finding("UNPROVED", "", "what the spec asks: the save could not be read"),)
        found = [Finding(CODES[i.state], i.name, _clause(i)) for i in self.items if i.state in CODES]
        unread = self.counts.get(State.UNREAD, 0)
        if unread:
            found.append(Finding("UNPROVED", "", f"{unread} things that the spec asks: they could not be read now"))
        if self.baseline:
            found.append(Finding("BASELINE", "", BASELINE))
        return tuple(found)


def _clause(item: Item) -> str:
    if item.state is State.MISSING:
        return f"{item.kind} is missing, {item.expected}" if item.expected else f"{item.kind} is missing"
    if item.state is State.UNEXPECTED:
        return f"{item.kind} {item.found}".rstrip()
    return f"{item.found or 'nothing'} where it must be {item.expected}"


def compare(document: Document, held: Held) -> Comparison:
    """Everything that the document asks, and everything that it does not."""
    baseline = document.origin == "baseline"
    if not held.is_known:
        return Comparison((), baseline, known=False)
    items = [*_tensors(document, held), *_objects(document, held), *_coverage(document, held)]
    items += [*_needs(document, held), *_settings(document, held)]
    return Comparison(tuple(items), baseline)


def _tensors(document: Document, held: Held) -> Iterator[Item]:
    named = {entry.name for entry in document.tensors}
    flat: set[str] = set()
    grouped = _by_prefix(document, held, named)
    for group in document.flat:
        items, taken = buckets.judge(group, grouped[group.prefix])
        flat |= taken
        yield from items
    for entry in document.tensors:
        expected = form(entry.dtype, entry.shape)
        if entry.name not in held.tensors:
            yield Item("tensor", entry.name, State.MISSING, expected)
            continue
        dtype, shape = held.tensors[entry.name]
        found = form(dtype, shape)
        if dtype == entry.dtype and shape == entry.shape:
            yield Item("tensor", entry.name, State.AGREES, expected, found)
        if dtype != entry.dtype:
            yield Item("tensor", entry.name, State.DTYPE, expected, found)
        if shape != entry.shape:
            yield Item("tensor", entry.name, State.SHAPE, expected, found)
    optional = _optional(document)
    for name in sorted(set(held.tensors) - named - flat):
        if not optional(name):
            yield Item("tensor", name, State.UNEXPECTED, found=form(*held.tensors[name]))


def _by_prefix(document: Document, held: Held, named: set[str]) -> dict[str, dict[str, tuple[str, tuple[int, ...]]]]:
    """Tensors of flat groups; prefixes end where a group's number does, so none is the beginning of another."""
    grouped: dict[str, dict[str, tuple[str, tuple[int, ...]]]] = {group.prefix: {} for group in document.flat}
    lengths = sorted({len(prefix) for prefix in grouped}, reverse=True)
    for name, found in held.tensors.items():
        prefix = next((name[:n] for n in lengths if name[:n] in grouped), None)
        if prefix is not None and name not in named:
            grouped[prefix][name] = found
    return grouped


def _optional(document: Document) -> Any:
    """Does a name fit one of the patterns of what may be there?"""
    allowed = [pattern(translate(one)) for one in document.optional]
    return lambda name: any(one.match(name) for one in allowed)


def _objects(document: Document, held: Held) -> Iterator[Item]:
    named = set(document.objects)
    for name in document.objects:
        yield Item("object", name, State.AGREES if name in held.objects else State.MISSING)
    optional = _optional(document)
    for name in sorted(held.objects - named):
        if not optional(name):
            yield Item("object", name, State.UNEXPECTED)


def _coverage(document: Document, held: Held) -> Iterator[Item]:
    """Do the weights, their masters and both moments hold the same elements?"""
    roles: tuple[Role, ...] = ("weight", *STATES)
    for role in roles:
        entries = [entry for entry in document.tensors if entry.role == role]
        if not entries:
            continue
        expected = sum(prod(entry.shape) for entry in entries)
        fits = [e for e in entries if e.name in held.tensors and held.tensors[e.name][1] == e.shape]
        covered = sum(prod(entry.shape) for entry in fits)
        state = State.AGREES if covered == expected else State.COVERAGE
        yield Item("coverage", role, state, f"{expected:,} elements", f"{covered:,}")


def _needs(document: Document, held: Held) -> Iterator[Item]:
    for need in document.needs:
        place = next((one for one in need.any_of if held.value_at(one) is not None), None)
        expected = " or ".join(need.any_of)
        if place is not None:
            yield Item("need", need.question, State.AGREES, expected, f"{place} {_text(held.value_at(place))}")
        elif held.facts is None and not all(one.startswith(("tensor:", "object:")) for one in need.any_of):
            yield Item("need", need.question, State.UNREAD, expected)
        else:
            yield Item("need", need.question, State.MISSING, expected)


def _settings(document: Document, held: Held) -> Iterator[Item]:
    for place, expected in document.settings.items():
        found = held.value_at(place)
        if held.facts is None:
            yield Item("setting", place, State.UNREAD, _text(expected))
        elif found is None:
            yield Item("setting", place, State.UNSAID, _text(expected))
        else:
            same = found == expected and isinstance(found, bool) == isinstance(expected, bool)
            yield Item("setting", place, State.AGREES if same else State.DIFFERS, _text(expected), _text(found))


def _text(value: Any) -> str:
    return str(value) if len(str(value)) <= 120 else f"{str(value)[:117]}..."
