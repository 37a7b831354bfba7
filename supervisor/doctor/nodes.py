"""What the nodes of a job have reported, judged: one verdict a question, with the nodes that differ, and one row a node. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from supervisor.doctor import shared_fs
from supervisor.doctor.meeting import Clock
from supervisor.doctor.step import Heard
from supervisor.doctor.verdict import Check
from supervisor.telling.say import clean, count, names, size, span

TMP_BYTES: Final = 1 << 28
"""Sockets, a warm process's files and stacks of a node's ranks: some MB; 256 MiB leaves room for what else lies there."""
CLOCK_WARN_S: Final = 0.5
"""relight measures each node's offset and orders evidence by it; people who read logs by hand don't."""
CLOCK_BAD_S: Final = 150.0
"""Munge takes a credential for 300 s: half of that is gone."""


@dataclass(frozen=True, slots=True)
class Row:
    """One node, as it spoke for itself; None or "" where it did not."""

    node: str
    answered: bool
    connected: bool
    python: str = ""
    executable: str = ""
    supervisor: str = ""
    digest: str = ""
    same_folder: bool | None = None
    folder: str = ""
    tmp_free: int | None = None
    munge: str | None = None
    clock: Clock | None = None


@dataclass(frozen=True, slots=True)
class Ours:
    """What every node is held against."""

    home: str
    digest: str
    python: tuple[int, ...]
    nonce: str


def rows(nodes: Sequence[str], heard: Heard, ours: Ours, munge: Mapping[str, str]) -> tuple[Row, ...]:
    """One row a node, in order. `munge`: what was wrong with each node's credential, "" for one that was taken."""
    return tuple(_row(node, heard, ours, munge) for node in nodes)


def _row(node: str, heard: Heard, ours: Ours, munge: Mapping[str, str]) -> Row:
    told = heard.reports.get(node)
    connected = node in heard.tried.peers
    if told is None:
        return Row(node, answered=connected, connected=connected, clock=heard.tried.clocks.get(node))
    home, python, free = told.get("home"), told.get("python"), told.get("tmp_free")
    return Row(
        node,
        answered=True,
        connected=connected,
        python=_text(".".join(map(str, python[:3]))) if isinstance(python, list) else "",
        executable=_text(told.get("executable")),
        supervisor=_text(home.get("supervisor")) if isinstance(home, dict) else "",
        digest=_text(told.get("digest")),
        same_folder=told.get("nonce") == ours.nonce,
        folder=_text(told.get("folder")),
        tmp_free=free if isinstance(free, int) else None,
        munge=munge.get(node),
        clock=heard.tried.clocks.get(node),
    )


def _text(value: object) -> str:
    return clean(value, 200) if isinstance(value, str) else ""


def judge(found: Sequence[Row], heard: Heard, ours: Ours, *, deadline_s: float, munge: bool) -> tuple[Check, ...]:
    """Every verdict, in order. Where no node answered, only that is said: nothing else is known."""
    first = reached(found, heard, deadline_s)
    some = [row for row in found if row.answered]
    if not some:
        return (first,)
    checks = [first, connected(some, heard), same_folder(some), packages(some, ours), python(some, ours)]
    checks += [clocks(some), *([munged(some)] if munge else []), tmp(some)]
    if len(heard.tried.peers) > 1:
        checks += [judged(heard.tried, name, "node") for judged, name in _TOGETHER]
    return tuple(checks)


_TOGETHER: Final[tuple[tuple[Callable[..., Check], str], ...]] = (
    (shared_fs.race, "nodes-create"),
    (shared_fs.locks, "nodes-lock"),
    (shared_fs.sight, "nodes-sight"),
)


def reached(found: Sequence[Row], heard: Heard, deadline_s: float) -> Check:
    """Did a step run on every node?"""
    silent = [row.node for row in found if not row.answered]
    said = f"; srun: {clean(heard.errors[0], 200)}" if heard.errors else ""
    if len(silent) == len(found):
        text = f"no node has answered a step within {span(deadline_s)}{said}"
        return Check("nodes", "unknown", text, "try `srun --overlap hostname` in the job: what does it say?")
    if silent:
        text = f"{count(len(silent), 'node')} of {len(found):,} did not answer: {names(silent)}{said}"
        return Check("nodes", "bad", text, "sinfo -n NODE, then drain it or leave it out; relight doctor again")
    return Check("nodes", "ok", f"a step ran on {count(len(found), 'node')}")


def connected(some: Sequence[Row], heard: Heard) -> Check:
    """Agents connect to the controller as these did to us."""
    apart = [row.node for row in some if not row.connected]
    if apart:
        why = heard.links.get(apart[0], "no connection came")
        right = "TCP from the nodes to this host; [cluster] listen names another address of it"
        return Check("nodes-connect", "bad", f"{names(apart)} can't connect to this host: {clean(why, 120)}", right)
    return Check("nodes-connect", "ok", f"{count(len(some), 'node')} connected to this host, as agents do")


def same_folder(some: Sequence[Row]) -> Check:
    """Is the run's folder the same place on every node?"""
    other = [row for row in some if row.same_folder is not True]
    if not other:
        return Check("nodes-folder", "ok", "the folder of the run is the same on all of them")
    unread = [row for row in other if row.same_folder is None]
    if unread:
        return Check("nodes-folder", "unknown", f"{names([row.node for row in unread])} did not say", "try again")
    why = f": {other[0].folder}" if other[0].folder else ""
    text = f"{names([row.node for row in other])} does not see what this host wrote in the folder of the run{why}"
    return Check("nodes-folder", "bad", text, "--run-dir on a file system that all nodes mount at the same path")


def packages(some: Sequence[Row], ours: Ours) -> Check:
    """Would `import supervisor` be ours there, and of this version?"""
    told = [row for row in some if row.digest]
    if len(told) < len(some):
        missing = sorted({row.node for row in some} - {row.node for row in told})
        return Check("nodes-packages", "unknown", f"{names(missing)} did not say", "try again")
    other = [row for row in told if row.supervisor != ours.home]
    if other:
        where = other[0].supervisor or "nowhere"
        text = f"{names([row.node for row in other])}: supervisor comes from {where}, not from {ours.home}"
        right = "the same environment at the same path on all nodes; pip uninstall supervisor where it is Supervisord's"
        return Check("nodes-packages", "bad", text, right)
    differs = [row.node for row in told if row.digest != ours.digest]
    if differs:
        text = f"{names(differs)}: {ours.home} has other files than here"
        return Check("nodes-packages", "bad", text, "the same version of relight on all nodes: install it again there")
    return Check("nodes-packages", "ok", f"supervisor, slurm and policies are ours, from {ours.home}")


def python(some: Sequence[Row], ours: Ours) -> Check:
    """The agents' Python."""
    told = {row.node: row.python for row in some if row.python}
    if len(told) < len(some):
        return Check("nodes-python", "unknown", "not all nodes said which Python they have", "try again")
    here = ".".join(map(str, ours.python))
    other = sorted(node for node, version in told.items() if version != here)
    if other:
        text = f"{names(other)}: Python {told[other[0]]}; {here} here"
        return Check("nodes-python", "warn", text, "one environment for all nodes")
    return Check("nodes-python", "ok", f"Python {here} on all of them")


def clocks(some: Sequence[Row]) -> Check:
    """How far is each clock from ours, for certain?"""
    seen = {row.node: row.clock for row in some if row.clock is not None}
    if len(seen) < len(some):
        missing = sorted({row.node for row in some} - seen.keys())
        right = "nodes-connect first: clocks are compared over a connection"
        return Check("nodes-clock", "unknown", f"{names(missing)}: not compared", right)
    far = {node: max(0.0, abs(clock.offset) - clock.bound) for node, clock in seen.items()}
    worst = max(far, key=lambda node: abs(seen[node].offset))
    clock = seen[worst]
    text = f"{worst} is {clock.offset * 1000:+.1f} ms off, give or take {clock.bound * 1000:.1f} ms"
    right = "one source of time for all nodes: chronyc tracking, on the node"
    if far[worst] > CLOCK_BAD_S:
        return Check("nodes-clock", "bad", text, right)
    if far[worst] > CLOCK_WARN_S:
        return Check("nodes-clock", "warn", text, right)
    return Check("nodes-clock", "ok", f"at most: {text}")


def munged(some: Sequence[Row]) -> Check:
    """Does this host take each node's credential?"""
    wrong = [row for row in some if row.munge]
    right = "the same munge.key on all machines, and clocks within 300 s of each other"
    if wrong:
        text = f"{names([row.node for row in wrong])}: {clean(wrong[0].munge or '', 160)}"
        return Check("nodes-munge", "bad", text, right)
    untold = [row.node for row in some if row.munge is None]
    if untold:
        return Check(
            "nodes-munge", "unknown", f"{names(untold)}: no credential came", "munge -n | unmunge, on the node"
        )
    return Check("nodes-munge", "ok", "this host takes each node's credential")


def tmp(some: Sequence[Row]) -> Check:
    """Is there room for the agents' sockets?"""
    free = {row.node: row.tmp_free for row in some if row.tmp_free is not None}
    if len(free) < len(some):
        missing = sorted({row.node for row in some} - free.keys())
        return Check(
            "nodes-tmp", "unknown", f"{names(missing)}: the room in /tmp can't be read", "df /tmp, on the node"
        )
    full = sorted(node for node, room in free.items() if room < TMP_BYTES)
    if full:
        text = f"{names(full)}: {size(free[full[0]])} free in /tmp"
        return Check("nodes-tmp", "bad", text, f"{size(TMP_BYTES)} at least: sockets of the agents lie there")
    return Check("nodes-tmp", "ok", f"{size(min(free.values()))} free in /tmp, or more")
