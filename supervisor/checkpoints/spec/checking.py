"""The spec as one more check of a save: what `Options.extra_checks` takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supervisor.checkpoints.reading.findings import Finding
from supervisor.checkpoints.reading.structure import Structure
from supervisor.checkpoints.spec.compare import Comparison, compare
from supervisor.checkpoints.spec.document import Document
from supervisor.checkpoints.spec.held import held
from supervisor.checkpoints.spec.stated import read_stated


class SpecCheck:
    """Compares the save in `folder` with a document. `comparison`: every item, once it was called."""

    def __init__(self, document: Document, folder: str) -> None:
        self.document = document
        self.folder = folder
        self.stated: Mapping[str, Any] | None = None
        self.comparison: Comparison | None = None

    def __call__(self, structure: Structure) -> tuple[Finding, ...]:
        """The findings. Raises ReaderFault."""
        self.stated = read_stated(self.folder, structure)
        self.comparison = compare(self.document, held(structure, self.stated))
        return self.comparison.findings()
