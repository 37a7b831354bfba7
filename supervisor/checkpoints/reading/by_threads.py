"""Who reads the bytes of a save: threads of this machine, or whoever else can give the same answers (`readers.py`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from supervisor.checkpoints.reading.content import ContentReader, FileRead, Job
from supervisor.checkpoints.reading.folder import lag_of
from supervisor.checkpoints.reading.structure import Structure
from supervisor.checkpoints.reading.throttle import Pace, Throttle

Progress = Callable[[int], None]
"""Told how many bytes more were read, from any thread."""


class ReadFiles(Protocol):
    """Reads files of one save and says what came of each. `structure` None: a later read, nothing but sums."""

    def read(
        self,
        folder: str,
        structure: Structure | None,
        jobs: list[Job],
        progress: Progress,
        throttle: Throttle | None = None,
    ) -> list[FileRead]:
        """One answer a job. A file that can't be read gives a finding, not an error.

        `throttle`: of its own pace, by which the caller may cancel. Raises CancelledError, OSError.
        """
        ...


@dataclass(frozen=True, slots=True)
class ByThreads:
    """So many threads of this process, at this pace."""

    threads: int
    pace: Pace = field(default_factory=Pace)

    def read(
        self,
        folder: str,
        structure: Structure | None,
        jobs: list[Job],
        progress: Progress,
        throttle: Throttle | None = None,
    ) -> list[FileRead]:
        """See ReadFiles."""
        if not jobs:
            return []
        reader = ContentReader(folder, structure, throttle or Throttle(self.pace), local=lag_of(folder) == 0.0)
        return reader.read_all(jobs, self.threads, progress)
