"""What is different between two plans, in the words of the person who has seen the first. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from policies.decisions import Recover
from policies.skipping import spans_text
from supervisor.telling.say import clean, names, plan_id

SHOWN = 8


def changes(before: Recover, after: Recover) -> tuple[str, ...]:
    """One line for each effect that differs; empty when a yes to one is a yes to the other."""
    lines = []
    if before.incident != after.incident:
        lines.append(f"incident {before.incident} -> {after.incident}")
    if before.attempt != after.attempt:
        lines.append(f"attempt {before.attempt} -> {after.attempt}")
    if before.checkpoint != after.checkpoint:
        lines.append(f"checkpoint {_save(before)} -> {_save(after)}")
    elif before.manifest_hash != after.manifest_hash:
        lines.append(f"checkpoint {_save(after)}: its manifest is another one")
    moved = [(slot, a, b) for slot, (a, b) in enumerate(zip(before.slots, after.slots, strict=False)) if a != b]
    lines += [f"slot {slot}: {clean(a, 64)} -> {clean(b, 64)}" for slot, a, b in moved[:SHOWN]]
    lines += [f"{len(moved) - SHOWN} slots more"] if len(moved) > SHOWN else []
    if len(before.slots) != len(after.slots):
        lines.append(f"slots {len(before.slots)} -> {len(after.slots)}")
    more = [node for node in after.bars if node not in before.bars]
    fewer = [node for node in before.bars if node not in after.bars]
    lines += [f"also barred: {names(more)}"] if more else []
    lines += [f"no longer barred: {names(fewer)}"] if fewer else []
    if before.skip_samples != after.skip_samples:
        lines.append(f"left out: {_spans(before)} -> {_spans(after)}")
    return tuple(lines)


def since(plans: Mapping[str, Recover], withdrawn: Mapping[str, str], seen: str, now: str | None) -> tuple[str, ...]:
    """What has changed since the plan whose digest begins with `seen`; `now` is the digest of the open one."""
    before = [digest for digest in plans if digest.startswith(seen)]
    if len(before) != 1:
        return (f"plan {clean(seen, 32)} is not one that this run has made",)
    digest = before[0]
    lines = [f"plan {plan_id(digest)} was withdrawn: {clean(withdrawn[digest])}"] if withdrawn.get(digest) else []
    if now is None or now not in plans:
        return (*lines, "no plan is open now")
    return (*lines, *changes(plans[digest], plans[now]))


def _save(plan: Recover) -> str:
    return clean(plan.checkpoint, 64) if plan.checkpoint else "none (from nothing)"


def _spans(plan: Recover) -> str:
    return spans_text(plan.skip_samples) if plan.skip_samples else "nothing"
