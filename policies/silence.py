"""Who is silent when others time out: the guilty rank leaves no error. Pure.

Each rule looks for one that differs from all others, and answers None when there is no such one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from policies.blocked import storage_wait, unkillable, waits_of
from policies.clues import Case, Clue, Stack, Verdict
from policies.inferring import TIMED_OUT, inferred, place

FEW: Final = 4
"""One in so many may differ and still be "the odd ones"."""

GAP_S: Final = 5.0
"""Seconds by which the first lost heartbeat must come before the next to mean anything (monitors look every 5 s)."""

_BUSY: Final = ("activity-save", "activity-prepare")


def infer(case: Case, live: Sequence[Clue]) -> Verdict | None:
    """What silence tells, or None."""
    for rule in (
        _named_peer,
        _stopped,
        _odd_stack,
        _out_of_step,
        _first_heartbeat,
        _busy_rank,
        _missing_in_trace,
        unkillable,
        _silent_ranks,
        _behind,
        storage_wait,
        _gap_in_tasks,
        _gone_peer,
        _slow,
    ):
        verdict = rule(case, live)
        if verdict is not None:
            return verdict
    return None


def _named_peer(case: Case, live: Sequence[Clue]) -> Verdict | None:
    """Completion errors name the peer that did not answer; one node that several others name is the one."""
    told = [c for c in live if c.role == "cascade" and c.blames == "peer" and c.category == "hardware.network"]
    if not told:
        return None
    first = min(told, key=lambda c: (c.earliest if c.earliest is not None else float("inf"), c.file, c.line))
    named = Counter(c.peer for c in told if c.peer is not None and c.peer != c.node)
    reporters = {c.node for c in told if c.node is not None}
    if named:
        peer, count = named.most_common(1)[0]
        by = {c.node for c in told if c.peer == peer}
        if len(by) >= 2 and count * 4 >= 3 * sum(named.values()) and peer not in by:
            first = next(c for c in told if c.peer == peer)
            first = place(first.file, first.line, None, peer, first.text, "hardware.network")
            why = f"{len(by)} nodes got no answer from {peer} and say so; {peer} itself says nothing of the kind."
            return inferred("hardware.network", first, why, live, restart=True, suspects=(peer,))
    del case
    why = f"{len(reporters) or 'Some'} nodes got no answer from their peers; the lines do not agree on one."
    return inferred("hardware.network", first, why, live, restart=True, confidence="low")


def _few(odd: Sequence[Stack], all_of: Sequence[Stack]) -> bool:
    """One in four at most; of two and of three, one."""
    return bool(odd) and len(all_of) > 1 and len(odd) <= max(1, len(all_of) // FEW)


def _stopped(case: Case, live: Sequence[Clue]) -> Verdict | None:
    """Processes that stood still as a whole (SIGSTOP, a debugger) while others waited."""
    still = [stack for stack in case.stacks if stack.waits_in == "stopped"]
    if not _few(still, case.stacks):
        return None
    one = still[0]
    first = place(one.file, one.line, one.rank, one.node, f"its process is stopped, in {one.top}", "hang.unknown")
    why = f"The process of rank {one.rank} is stopped (SIGSTOP or a debugger); the others wait for it."
    return inferred("hang.unknown", first, why, live, restart=True, confidence="high")


def _odd_stack(case: Case, live: Sequence[Clue]) -> Verdict | None:
    """Everybody waits in a collective but one, which sits somewhere else."""
    odd = [stack for stack in case.stacks if stack.waits_in != "communication"]
    if not _few(odd, case.stacks):
        return None
    stack: Stack = odd[0]
    category = {"data": "software.framework", "storage": "storage.io"}.get(stack.waits_in, "software.user")
    first = place(stack.file, stack.line, stack.rank, stack.node, stack.top, category)
    why = f"{len(case.stacks) - len(odd)} of {len(case.stacks)} processes wait in a collective; this one waits in: {stack.top}."
    return inferred(category, first, why, live, restart=category != "software.user", confidence="high")


def _out_of_step(case: Case, live: Sequence[Clue]) -> Verdict | None:
    """The collective that each rank waited in, by number and kind: one that differs took another way."""
    outs: dict[int, Clue] = {}
    for clue in live:
        if clue.kind == "collective-timeout" and clue.rank is not None and clue.seq is not None:
            outs.setdefault(clue.rank, clue)
    if len(outs) < 3:
        return None
    common, count = Counter(c.seq or 0 for c in outs.values()).most_common(1)[0]
    odd = sorted(rank for rank, c in outs.items() if c.seq != common)
    if not odd:
        return _other_kind(case, live, outs)
    if len(odd) * FEW > len(outs) + FEW or count < 2:
        return None
    rank = odd[0]
    seq = outs[rank].seq or 0
    ahead = seq > common
    own = [c for c in live if c.rank == rank and c.kind in ("data-exhausted", *_BUSY)]
    data = any(c.kind == "data-exhausted" for c in own) or (ahead and not own)
    category = "data" if data else ("config" if own else "software.user")
    first = own[-1] if own else _last_word(case, outs[rank], category)
    way = "was ahead of" if ahead else "was behind"
    why = f"Rank {rank} waited in collective {seq} while {count} others waited in {common}: it {way} them."
    return inferred(category, first, why, live, restart=False, confidence="high" if own else "medium")


def _other_kind(case: Case, live: Sequence[Clue], outs: Mapping[int, Clue]) -> Verdict | None:
    """All wait in the collective of one number, but for some it is of another kind: their program went another way."""
    kinds = Counter(c.op for c in outs.values() if c.op)
    if len(kinds) != 2:
        return None
    (common, count), (other, few) = kinds.most_common()
    if few * FEW > len(outs) or count + few < len(outs):
        return None
    rank = min(rank for rank, c in outs.items() if c.op == other)
    first = _last_word(case, outs[rank], "software.user")
    why = f"Rank {rank} waited in {other} while {count} others waited in {common}: its program went another way."
    return inferred("software.user", first, why, live, restart=False, confidence="high")


def _last_word(case: Case, out: Clue, category: str) -> Clue:
    """What a rank said last before its time ran out; that it ran out, where nothing is known."""
    words = case.last_words.get(out.rank) if out.rank is not None else None
    if words is None:
        return out
    return place(words.file, words.line, out.rank, case.node_of(out.rank) or out.node, words.text, category)


def _first_heartbeat(case: Case, live: Sequence[Clue]) -> Verdict | None:
    """The monitor that missed a heartbeat well before all others did."""
    del case
    lost = sorted(
        (c for c in live if c.kind == "heartbeat-lost" and c.earliest is not None), key=lambda c: c.earliest or 0.0
    )
    if not lost:
        return None
    if len(lost) > 1 and (lost[1].earliest or 0.0) - (lost[0].earliest or 0.0) < GAP_S:
        return None
    first = lost[0]
    if first.rank is None:
        ends = [c for c in live if c.kind == "launcher-exit" and c.file == first.file]
        rank = ends[0].rank if len(ends) == 1 else None
        first = place(first.file, first.line, rank, first.node, first.text, "hang.unknown")
    gap = (lost[1].earliest or 0.0) - (lost[0].earliest or 0.0) if len(lost) > 1 else 0.0
    why = f"Its heartbeat stopped {gap:.0f} s before that of any other rank."
    return inferred("hang.unknown", first, why, live, restart=True)


def _waiting(case: Case, live: Sequence[Clue]) -> tuple[set[int], set[int]]:
    """Ranks that timed out, and ranks that did not and left no other error either."""
    hurt = {c.rank for c in live if c.kind in TIMED_OUT and c.rank is not None}
    if case.world is None:
        return hurt, set()
    return hurt, set(range(case.world)) - hurt


def _busy_rank(case: Case, live: Sequence[Clue]) -> Verdict | None:
    """A rank was still at work (saving, preparing data) when the others' time ran out: the limit is too short for it."""
    hurt, silent = _waiting(case, live)
    outs = [c for c in live if c.kind in TIMED_OUT]
    if not outs or not hurt or (silent and len(silent) * 2 > len(hurt) + len(silent)):
        return None
    before = [
        c
        for c in live
        if c.kind in (*_BUSY, "activity-saved", "data-exhausted")
        and (c.rank is None or c.rank in silent)
        and any(o.file == c.file and o.line > c.line for o in outs)
    ]
    if not before or before[-1].kind not in _BUSY:
        return None
    last = before[-1]
    run = [last]
    for clue in reversed(before[:-1]):
        if clue.kind != last.kind or run[-1].line - clue.line > 20:
            break
        run.append(clue)
    start = run[-1]
    rank = start.rank if start.rank is not None else (min(silent) if len(silent) == 1 else None)
    first = place(start.file, start.line, rank, start.node or case.node_of(rank), start.text, "config")
    what = "saving" if last.kind == "activity-save" else "preparing data"
    who = f"Rank {rank}" if rank is not None else "A process"
    why = f"{who} was still {what} when the time limit of the other {len(hurt)} ranks ran out: the limit is shorter than the work."
    return inferred("config", first, why, live, restart=False)


def _missing_in_trace(case: Case, live: Sequence[Clue]) -> Verdict | None:
    """The flight recorders name who never came."""
    told = next((c for c in live if c.kind == "trace-missing" and c.tasks), None)
    if told is None:
        return None
    nodes = {case.node_of(rank) for rank in told.tasks}
    node = nodes.pop() if len(nodes) == 1 else None
    words = case.last_words.get(told.tasks[0])
    where = (told.file, told.line) if words is None else (words.file, words.line)
    text = told.text if words is None else words.text
    first = place(*where, told.tasks[0], node, text, "hang.unknown")
    who = f"Rank{'s' if len(told.tasks) > 1 else ''} {', '.join(map(str, told.tasks[:8]))}"
    waiting = f", in which {told.code} ranks waited" if told.code else ""
    why = f"{who} never reached {told.text}{waiting}: the flight recorders say so ({told.file})."
    suspects = (node,) if node is not None and _all_of(case, node, set(told.tasks)) else ()
    return inferred("hang.unknown", first, why, live, restart=True, suspects=suspects)


def _all_of(case: Case, node: str, ranks: set[int]) -> bool:
    """All ranks of a node that has several, in a job of several nodes."""
    own = case.ranks_of(node)
    return len(case.nodes) > 1 and len(own) > 1 and set(own) <= ranks


def _silent_ranks(case: Case, live: Sequence[Clue]) -> Verdict | None:
    """Ranks that never said that they waited, while most others did."""
    hurt, silent = _waiting(case, live)
    if not silent or len(hurt) < 2 or len(silent) * FEW > len(hurt) + len(silent):
        return None
    if 0 in silent and case.last_step is None and all(c.kind != "collective-timeout" for c in live):
        return None  # the store that nobody reached lives with rank 0: a name or a port, not a rank
    ranks = sorted(silent)
    nodes = {case.node_of(rank) for rank in ranks}
    node = nodes.pop() if len(nodes) == 1 else None
    if waits := waits_of(live, node):
        wait = replace(waits[0], rank=waits[0].rank if len(ranks) > 1 else ranks[0])
        why = (
            f"{node}, whose rank {ranks[0]} never reached the collective of {len(hurt)} others, waits for its storage."
        )
        return inferred("storage.io", wait, why, live, restart=True)
    words = case.last_words.get(ranks[0])
    own = [c for c in live if c.rank in silent and c.role in ("root", "context") and not c.survived]
    first = own[-1] if own else None
    if first is None and words is not None:
        first = place(words.file, words.line, ranks[0], node, words.text, "hang.unknown")
    if first is None:
        out = min((c for c in live if c.kind in TIMED_OUT), key=lambda c: (c.earliest or float("inf"), c.line))
        first = place(out.file, out.line, ranks[0], node, out.text, "hang.unknown")
    names = ", ".join(str(rank) for rank in ranks[:8])
    why = f"Rank{'s' if len(ranks) > 1 else ''} {names} never reached the collective in which {len(hurt)} ranks timed out."
    suspects = (node,) if node is not None and _all_of(case, node, silent) else ()
    return inferred("hang.unknown", first, why, live, restart=True, suspects=suspects)


def _behind(case: Case, live: Sequence[Clue]) -> Verdict | None:
    """In logs of one rank each: the one whose last step is before everybody else's."""
    last = {rank: words.step for rank, words in case.last_words.items() if words.step is not None}
    if len(last) < 3 or not any(c.role == "cascade" or c.kind == "cancelled" for c in live):
        return None
    common, count = Counter(last.values()).most_common(1)[0]
    odd = sorted(rank for rank, step in last.items() if step < common)
    if not odd or len(odd) * FEW > len(last) or count * 2 < len(last):
        return None
    rank = odd[0]
    words = case.last_words[rank]
    first = place(words.file, words.line, rank, case.node_of(rank), words.text, "hang.unknown")
    why = f"Rank {rank} stopped after step {last[rank]}; {count} others did step {common}."
    return inferred("hang.unknown", first, why, live, restart=True)


def _gap_in_tasks(case: Case, live: Sequence[Clue]) -> Verdict | None:
    """Where srun says "tasks 0-57,59-63: Terminated", 58 was gone before."""
    swept = [c for c in live if c.kind == "srun-terminated" and c.tasks]
    if not swept or any(c.grade >= 1 and c.role == "root" for c in live):
        return None
    tasks = {task for clue in swept for task in clue.tasks}
    world = case.world if case.world is not None and max(tasks) < case.world else max(tasks) + 1
    missing = sorted(set(range(world)) - tasks)
    if not missing or len(missing) * FEW > world:
        return None
    rank = missing[0]
    first = place(swept[0].file, swept[0].line, rank, case.node_of(rank), swept[0].text, "hang.unknown")
    why = f"srun ended all tasks but {', '.join(map(str, missing[:8]))}: gone before the others were stopped."
    return inferred("hang.unknown", first, why, live, restart=True, confidence="low")


def _gone_peer(case: Case, live: Sequence[Clue]) -> Verdict | None:
    """Several nodes lost their connection to one that says nothing: its processes went first, nobody knows why."""
    told = [c for c in live if c.kind == "peer-gone" and c.peer is not None and c.peer != c.node]
    named = Counter(c.peer for c in told)
    if not named or any(c.role == "root" for c in live):
        return None
    peer, count = named.most_common(1)[0]
    by = {c.node for c in told if c.peer == peer}
    if len(by) < 2 or count * 4 < 3 * len(told) or any(c.node == peer for c in live):
        return None
    first = next(c for c in told if c.peer == peer)
    first = place(first.file, first.line, None, peer, first.text, "hang.unknown")
    del case
    why = f"{len(by)} nodes lost their connections to {peer}, which says nothing itself."
    return inferred("hang.unknown", first, why, live, restart=True, confidence="low")


def _slow(case: Case, live: Sequence[Clue]) -> Verdict | None:
    """Nothing failed, but the run got slower for good, or a device fails its check."""
    ended_well = case.finished_at is not None and case.finished_at.kind != "finished-word"
    if case.completed or ended_well or any(c.role in ("root", "cascade") for c in live):
        return None
    checks = [c for c in live if c.category == "performance.straggler"]
    if not checks and case.pace is None:
        return None
    pace = (
        f"The time per step went from {case.pace.before:.2f} s to {case.pace.after:.2f} s and stayed. "
        if case.pace
        else ""
    )
    if checks:
        first = min(checks, key=lambda c: (c.rank is None, c.node is None))  # of those that say as much the first
        suspects = tuple(sorted({c.node for c in checks if c.node}))[:2]
        why = f"{pace}A check of {first.node or 'a node'} fails."
        return inferred("performance.straggler", first, why, live, restart=False, suspects=suspects)
    assert case.pace is not None  # noqa: S101 - for the type checker
    first = place(case.pace.file, case.pace.line, None, None, "time per step rises", "performance.straggler")
    return inferred(
        "performance.straggler", first, f"{pace}Nothing here says which node.", live, restart=False, confidence="low"
    )
