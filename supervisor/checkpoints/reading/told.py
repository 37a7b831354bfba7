"""A report on a checkpoint, for programs and for people, and the progress of a long check."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from supervisor.checkpoints.reading.findings import MEANING, Finding, Verdict, Weight
from supervisor.checkpoints.reading.verifying import Report, Watcher

_KINDS = {
    "megatron": "Megatron torch_dist",
    "dcp": "torch DCP",
    "dcp-ranks": "torch DCP, metadata by rank",
    "safetensors": "safetensors",
    "unknown": "format unknown",
}
_COLOURS = {Weight.BROKEN: "red", Weight.NOT_YET: "yellow", Weight.NOTE: "cyan"}
_WORDS = {
    Verdict.COMPLETE: ("complete", "bold green"),
    Verdict.BROKEN: ("broken", "bold red"),
    Verdict.NOT_YET: ("not yet: it can't be judged now", "bold yellow"),
}


def answer(report: Report) -> dict[str, Any]:
    """JSON of the command. `files` and `bytes` are of the folder; `weight` says what a finding does to the verdict."""
    return {
        "schema": 1,
        "verdict": report.verdict.value,
        "format": report.structure.format,
        "iteration": report.iteration,
        "save_id": report.structure.save_id,
        "counters": dict(report.counters),
        "findings": [
            {"code": found.code, "path": found.path, "detail": found.detail, "weight": found.weight.value}
            for found in report.findings
        ],
        "repairable": report.repairable,
        "tensors": len(report.structure.tensors),
        "objects": len(report.structure.objects),
        "files": len(report.look.files),
        "bytes": report.bytes,
        "read": len(report.sums),
        "seconds": round(report.seconds, 3),
    }


def show(report: Report) -> None:
    """The picture for people, on standard output."""
    from rich.console import Console, Group  # noqa: PLC0415 - a program that asks for JSON need not wait for it
    from rich.padding import Padding  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    word, style = _WORDS[report.verdict]
    which = "" if report.iteration is None else f"iteration {report.iteration}, "
    head = Text.assemble((word, style), f"   {which}{_KINDS.get(report.structure.format, report.structure.format)}")
    facts = Table.grid(padding=(0, 2))
    for name, text in _facts(report):
        facts.add_row(Text(name, style="dim"), Text(text))
    parts: list[Any] = [head, Padding(facts, (0, 0, 0, 2))]
    if report.findings:
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        for found in report.findings:
            mark = Text(found.code, style=_COLOURS[found.weight])
            table.add_row(mark, Text(_sentence(found), overflow="fold"))
        parts.append(Padding(table, (1, 0, 0, 2)))
    if report.repairable:
        parts.append(Text("\nThe data is whole: with metadata.json written again, it is complete."))
    Console(highlight=False, soft_wrap=False).print(Group(*parts))


def _facts(report: Report) -> list[tuple[str, str]]:
    facts = [("folder", "".join(char if char.isprintable() else "?" for char in report.folder))]
    tensors, objects = len(report.structure.tensors), len(report.structure.objects)
    if tensors or objects:
        chunks = sum(tensor.chunks for tensor in report.structure.tensors.values())
        facts.append(("holds", f"{tensors:,} tensors in {chunks:,} chunks, {objects:,} objects"))
    known = [f"{name} {value:,}" for name, value in report.counters.items() if isinstance(value, int)]
    if known:
        facts.append(("counters", ", ".join(known)))
    if isinstance(report.counters.get("lr"), float):
        facts.append(("learning rate", f"{report.counters['lr']:.4g}"))
    speed = f", {report.bytes / report.seconds / 1e9:.2f} GB/s" if report.sums and report.seconds >= 1 else ""
    files = f"{len(report.look.files):,} files, {size_text(report.bytes)}; {len(report.sums):,} read to the last byte"
    facts.append(("files", f"{files}, {report.seconds:.1f} s{speed}"))
    return facts


def _sentence(found: Finding) -> str:
    where = f"{found.path}: " if found.path else ""
    return (
        f"{where}{found.detail}\n{MEANING[found.code]}" if found.weight is not Weight.NOTE else f"{where}{found.detail}"
    )


def size_text(size: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} TB"


class _Bar(Watcher):
    """A bar on standard error."""

    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._task: Any = None

    def begin(self, what: str, total: int) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(what, total=total or None)

    def read(self, count: int) -> None:
        self._progress.advance(self._task, count)


@contextmanager
def watching(*, quiet: bool) -> Iterator[Watcher]:
    """Somebody who watches a check: on a terminal a bar with speed and time left, else nobody."""
    if quiet:
        yield Watcher()
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _Bar(progress)
