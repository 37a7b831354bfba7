"""The reference trainer, with a mark of its first statement and, on the last rank, of each step.

Run in place of the trainer by every rival, so that all are timed alike. A mark is one line appended to the file that
RELIGHT_BENCH_MARKS names; its time is CLOCK_MONOTONIC, which all processes of a machine share.
"""

import time

FIRST = time.monotonic()  # before anything else is imported: this is the first statement

import json  # noqa: E402
import os  # noqa: E402
import runpy  # noqa: E402
import sys  # noqa: E402


class Marks:
    """Appends lines to the file of marks; a line is written in one piece."""

    def __init__(self, path: str, rank: int) -> None:
        """Open the file. Raises OSError."""
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._rank = rank

    def add(self, at: float, step: int | None = None) -> None:
        """One mark: of the first statement, or of a step that is done."""
        line = {"t": at, "rank": self._rank, "pid": os.getpid(), "step": step}
        os.write(self._file, json.dumps(line).encode() + b"\n")


class Told:
    """Standard output that marks the trainer's line about a step as it is written."""

    def __init__(self, inner: object, marks: Marks) -> None:
        self._inner, self._marks = inner, marks

    def write(self, text: str) -> int:
        """Mark a step; then write as before."""
        if text.startswith("step "):
            self._marks.add(time.monotonic(), int(text.split()[1]))
        return int(self._inner.write(text))  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def main() -> None:
    """Mark, then be the trainer."""
    rank = int(os.environ["RANK"])
    marks = Marks(os.environ["RELIGHT_BENCH_MARKS"], rank)
    marks.add(FIRST)
    if rank == int(os.environ["WORLD_SIZE"]) - 1:
        sys.stdout = Told(sys.stdout, marks)
    runpy.run_module("supervisor.bench.trainer", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
