"""A line on a terminal that shows how far a long piece of work has come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def watched(title: str, *, quiet: bool) -> Iterator[Callable[[int, int, str], None]]:
    """Gives what is told of it: bytes done, bytes in all, what is being done. Nothing is shown when `quiet`."""
    if quiet:
        yield lambda _done, _total, _what: None
        return
    from rich.console import Console  # noqa: PLC0415 - only where somebody looks
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.progress import TransferSpeedColumn as Speed  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), Speed(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total, what: bar.update(task, completed=done, total=total, description=what)
