"""A verdict for people: the story, the lines it stands on, what speaks against it, the page of the runbook. Pure."""

from __future__ import annotations

from typing import Final

from policies.clues import Clue
from supervisor.evidence.folder import Diagnosed
from supervisor.telling.say import clean, count

_PAGES: Final = {
    "scheduler.nodefail": "node-lost",
    "hang.unknown": "stall",
    "numeric": "non-finite-loss",
    "storage.full": "no-room-for-checkpoint",
    "storage.io": "store-unreadable",
    "storage.ckpt_corrupt": "no-checkpoint",
    "software.env": "launch-failed",
    "config": "launch-failed",
    "scheduler.timelimit": "planned-stop",
}
"""Pages of the runbook for categories; hardware has that of a lost node, every other one that of a rank that failed."""


def page(category: str) -> str:
    """The page of the runbook to read for a category."""
    if category == "none":
        return "finished"
    if category.startswith("hardware"):
        return "node-lost"
    return _PAGES.get(category, "rank-died" if category.startswith("oom") else "rank-failed")


def story(found: Diagnosed) -> str:
    """The answer as lines of text, without colours."""
    verdict = found.verdict
    lines: list[str] = []
    if verdict.cannot_tell:
        lines.append(f"Cannot tell whether it failed. {verdict.why}")
        if verdict.first is not None:
            lines.append(f"  the last line: {_shown(verdict.first)}")
        lines.append(_restart(verdict.restart_ok))
    elif not verdict.failed:
        lines.append(f"Not failed ({verdict.confidence} confidence). {verdict.why}")
    elif verdict.first is None:
        lines.append(f"Failed, {verdict.category}. {verdict.why}")
    else:
        first = verdict.first
        rank = f"rank {first.rank}" if first.rank is not None else "rank not known"
        lines += [
            f"{first.node or 'node not known'}, {rank}: {verdict.category} ({verdict.confidence} confidence, {verdict.evidence})",
            f"  {_shown(first)}",
            verdict.why,
        ]
        if verdict.cascade:
            lines.append(verdict.cascade)
        lines.append(_restart(verdict.restart_ok))
    lines += [f"  with it: {_shown(clue)}" for clue in verdict.support]
    label = "ruled out" if verdict.failed else "harmless"
    lines += [f"  {label}: {clean(text, 200)}" for text in verdict.against]
    lines += [f"  note: {clean(text, 200)}" for text in found.case.notes[:8]]
    read = f"Read: {count(found.files, 'file')}, {found.size / 1e6:.1f} MB."
    lines.append(read if verdict.cannot_tell else f"{read}    relight runbook {page(verdict.category)}")
    return "\n".join(lines) + "\n"


def _shown(clue: Clue) -> str:
    return f"{clean(clue.file, 200)}:{clue.line}  {clean(clue.text, 160)}"


def _restart(helps: bool | None) -> str:
    if helps is None:
        return "Whether a restart helps is not known."
    return (
        "A restart on the same nodes and data may help."
        if helps
        else "A restart on the same nodes and data will not help."
    )
