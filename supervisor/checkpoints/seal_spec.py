"""What a save is held against when it is sealed: the run's spec, whose differences make it broken; where there is none, the
first save that was completed, whose differences are told and decide nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from supervisor.checkpoints import posix
from supervisor.checkpoints.reading.findings import Finding
from supervisor.checkpoints.reading.structure import ReaderFault, Structure
from supervisor.checkpoints.spec import document as documents
from supervisor.checkpoints.spec import told
from supervisor.checkpoints.spec.baseline import baseline_of
from supervisor.checkpoints.spec.compare import Comparison, compare
from supervisor.checkpoints.spec.document import Document
from supervisor.checkpoints.spec.held import Held, held
from supervisor.checkpoints.spec.items import State
from supervisor.checkpoints.spec.stated import read_stated
from supervisor.checkpoints.tree import SaveId, Tree
from supervisor.errors import UserError

TOLD = 5
"""Differences from a baseline that are named; the rest is counted."""


class SpecAwayError(Exception):
    """The run's own spec can't be read, or is another one now; nothing can be said of a save."""


@dataclass(frozen=True, slots=True)
class SpecFile:
    """The spec that was frozen with the run: where it lies, and the digest that settings.json gives it."""

    path: str
    digest: str

    def read(self) -> Document:
        """Raises SpecAwayError."""
        try:
            found = documents.read(self.path)
        except UserError as error:
            raise SpecAwayError(f"the run's spec can't be read: {error}") from None
        if found.digest != self.digest:
            raise SpecAwayError(f"{self.path} is not the spec that the run was started with")
        return found


class Standard:
    """What all saves of one store are held against."""

    def __init__(self, tree: Tree, spec: SpecFile | None) -> None:
        self._tree = tree
        self._spec = spec

    def question(self, save: SaveId, folder: str) -> Question:
        """For one save, whose data lies in `folder`. Raises SpecAwayError."""
        if self._spec is not None:
            return SpecQuestion(self._spec.read(), folder)
        return BaselineQuestion(self._tree.baseline, save, folder)


class Question:
    """One save held against it: an extra check for `Options`. Afterwards `checks` and `document` go into the manifest."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.document: Document | None = None
        """The spec that decides; None for a baseline, which does not."""
        self.checks: Mapping[str, str] = {}
        self.unsettled = ""
        """Why it can't be said now whether the save is as it must be; empty: it was said."""

    def __call__(self, structure: Structure) -> tuple[Finding, ...]:
        """What is found, when the structure is known. Raises ReaderFault."""
        raise NotImplementedError

    def accepted(self, step: posix.Step) -> None:
        """The save was completed."""

    def _held(self, structure: Structure) -> Held:
        return held(structure, read_stated(self._folder, structure))


class SpecQuestion(Question):
    """Against the spec of the run."""

    def __init__(self, document: Document, folder: str) -> None:
        super().__init__(folder)
        self.document = document
        self._spec = document

    def __call__(self, structure: Structure) -> tuple[Finding, ...]:
        """Each difference is a finding. What could not be read leaves it open: a spec is there to be answered."""
        found = compare(self._spec, self._held(structure))
        unread = found.counts.get(State.UNREAD, 0)
        if not found.known or unread:
            what = f"{unread} things that the spec asks" if found.known else "what the spec asks"
            self.unsettled = f"{what}: they could not be read now"
        unsaid = found.counts.get(State.UNSAID, 0)
        agree = f"{found.counts.get(State.AGREES, 0):,} of {len(found.items):,} items agree"
        more = f", {unsaid:,} settings are not said" if unsaid else ""
        self.checks = {"spec": f"{told.ORIGINS[self._spec.origin]}, {self._spec.digest[:12]}: {agree}{more}"}
        return found.findings()


class BaselineQuestion(Question):
    """Against the first completed save of the store; that one itself becomes the baseline. Never a verdict."""

    def __init__(self, path: str, save: SaveId, folder: str) -> None:
        super().__init__(folder)
        self._path = path
        self._save = save
        self._first: Document | None = None

    def __call__(self, structure: Structure) -> tuple[Finding, ...]:
        """No finding: what differs is told in the manifest's `checks`."""
        try:
            self.checks = {"baseline": self._compared(structure)}
        except ReaderFault as fault:  # of something that decides nothing
            self.checks = {"baseline": f"not compared, our own reader failed: {fault}"[:500]}
        return ()

    def _compared(self, structure: Structure) -> str:
        holds = self._held(structure)
        try:
            before = documents.parse(posix.read_bounded(self._path, documents.DOCUMENT_LIMIT), "baseline.json")
        except FileNotFoundError:
            self._first = self._as_baseline(holds, structure)
            return "none yet; this one becomes it" if self._first else "none yet, and nothing here to become one"
        except OSError as error:
            return f"not compared: {posix.why(error)}"
        except UserError as error:
            return f"not compared: {error}"
        return _told(compare(before, holds), before)

    def _as_baseline(self, holds: Held, structure: Structure) -> Document | None:
        if holds.facts is None:
            return None
        about = {"save": str(self._save), "save_id": str(structure.save_id)}
        with contextlib.suppress(ValidationError):  # it names no tensor, or one twice
            return baseline_of(holds, about)
        return None

    def accepted(self, step: posix.Step) -> None:
        """Of two that are first, the first one that gets here is."""
        if self._first is not None:
            with contextlib.suppress(OSError):  # then the next one becomes it
                posix.create_whole(self._path, self._first.to_bytes(), step)


def _told(found: Comparison, before: Document) -> str:
    which = before.about.get("save", "the first one")
    if not found.known:
        return f"not compared with {which}: the save could not be read"
    if not found.differences:
        return f"as in {which}: {found.counts.get(State.AGREES, 0):,} items"
    named = "; ".join(f"{item.kind} {item.name} {item.state.value}" for item in found.differences[:TOLD])
    more = f"; and {len(found.differences) - TOLD} more" if len(found.differences) > TOLD else ""
    return f"BASELINE: {len(found.differences):,} of {len(found.items):,} items are not as in {which}: {named}{more}"
