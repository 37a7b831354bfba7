"""Readings of files -> one case: clues with rank, node and bounded time, last words, stacks, pace. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Final

from policies.clues import Case, Clue, LastWords, Pace, Stack
from supervisor.evidence.accounting import completed, ends, of_others
from supervisor.evidence.clocks import SLACK_S, Clocks, is_kernel, measure, stepped_from
from supervisor.evidence.labels import Label, read_label
from supervisor.evidence.names import expand, numbers
from supervisor.evidence.places import Block, Places, bus_of
from supervisor.evidence.placing import resolve
from supervisor.evidence.reading import FileReading, Raw
from supervisor.evidence.stacks import read_stack
from supervisor.evidence.stamps import with_year
from supervisor.evidence.survival import survivors

_EXITS: Final = {
    -9: "oom.host",
    -11: "software.framework",
    -7: "config",
    -8: "software.framework",
    -4: "software.framework",
    137: "oom.host",
    139: "software.framework",
    135: "config",
    134: "software.framework",
}
"""What a bare exit code of a launcher hints at: 9 is mostly the OOM killer, 7 mostly shared memory."""

_FRAMES: Final = (
    ("load", re.compile(r"load_state_dict|load_checkpoint|torch\.load|_load|dist_checkpointing.* load")),
    ("save", re.compile(r"filesystem_async|save_checkpoint|state_dict_saver|_save\b|save_model|write_preloaded")),
    (
        "data",
        re.compile(r"utils/data|/data(sets?|loader|_utils)?/|data(set|loader)\w*\.py|indexed_dataset|tokeniz|collat"),
    ),
)

NAMED: Final = 8
"""Nodes of one line that are told apart."""

_FRAMEWORK: Final = re.compile(
    r"site-packages/(deepspeed|megatron|transformer_engine|apex|colossalai|fairscale|nemo/core|lightning_fabric|torchtitan/distributed"
    r"|torch/(distributed|_inductor|_dynamo|_functorch|autograd))/|/megatron/core/(?!.*(arguments|config))"
)
"""An error that is raised here, by the innermost frame, is mostly not one of the script."""

_KERNELS: Final = re.compile(
    r"(site|dist)-packages/(flash_attn\w*|xformers|apex|transformer_engine|mamba_ssm|causal_conv1d|bitsandbytes|deep_ep"
    r"|grouped_gemm|fla|flashinfer|liger_kernel|cutlass|kernels)/"
)
"""Libraries of kernels: a device that faults in one, on several machines at once, met a bug of it."""


def assemble(
    readings: Sequence[FileReading], places: Places | None = None, zones: Mapping[str, float] | None = None
) -> Case:
    """The case of all that was read. `places`: a layout that is known; else it is found in the logs."""
    places = resolve(readings) if places is None else places
    clocks = measure(readings, places.node_of_file, zones or {})
    clues = [clue for reading in readings for clue in _clues(reading, places, clocks)]
    others = of_others(readings)
    clues = [clue for clue in clues if (clue.file, clue.line) not in others]
    clues = [*survivors(clues, readings, clocks, places), *ends(readings)]
    notes = [*clocks.notes, *(f"{r.name}: {r.problem}" for r in readings if r.problem)]
    last = max((m for r in readings for m in r.marks if m.step is not None), key=lambda m: m.step or 0, default=None)
    return Case(
        clues=tuple(clues),
        nodes=places.nodes,
        world=places.world,
        per_node=places.per_node if places.whole else None,
        completed=completed(readings),
        finished_at=_finished(clues, readings),
        last_words=_last_words(readings, places),
        stacks=tuple(_stacks(readings, places)),
        pace=_pace(readings),
        idle_s=_idle(readings, clocks, clues),
        last_step=max((mark.step or 0 for reading in readings for mark in reading.marks), default=None),
        of_steps=last.total if last is not None else None,
        is_job=any(_of_a_job(reading) for reading in readings),
        ending=_ending(readings),
        notes=tuple(notes),
    )


def _clues(reading: FileReading, places: Places, clocks: Clocks) -> list[Clue]:
    clock = clocks.of_file[reading.name]
    jump_line = stepped_from(reading, clock, clocks.near)
    blocks = sorted(
        [b for b in places.blocks if b.file == reading.name] + _srun_ends(reading, places), key=lambda b: b.line
    )
    found = []
    for raw in reading.raws:
        if raw.row.kind.startswith("layout-") or raw.row.kind == "accounting-row" or _elsewhere(raw, reading, places):
            continue
        rank, node = _who(raw, reading.name, places, blocks)
        stepped = jump_line is not None and raw.line >= jump_line
        low = clocks.span(raw.before, reading.name, stepped=stepped, since_boot=raw.since_boot)
        high = clocks.span(raw.after, reading.name, stepped=stepped, since_boot=raw.since_boot)
        if low is not None and high is not None and low[0] > high[1]:
            low, high = high, low  # the stamps around it run backwards: it is of any time between them
        category, code = raw.row.category, None
        if "code" in raw.groups:
            code = int(raw.groups["code"][:6])
            category = _EXITS.get(code, category)
        peer = places.host(raw.groups.get("peer")) if raw.groups.get("peer") else None
        named = _named(raw, places)
        if peer is None and named:
            peer = named[0]
        foreign = raw.row.kind.startswith("xid-") and _foreign(raw.groups.get("pid"), node, places)
        foreign = foreign and not (_during(low, high, clocks) and _on_ours(raw, node, places))
        foreign = foreign or (bool(named) and places.listed and places.host(named[0]) is None)
        seq = raw.groups.get("seq", "")
        found.append(
            Clue(
                kind=raw.row.kind,
                role=raw.row.role,
                grade=raw.row.grade,
                category=category,
                blames=raw.row.blames,
                restart=raw.row.restart,
                text=raw.text,
                file=reading.name,
                line=raw.line,
                rank=rank,
                node=node,
                peer=peer,
                earliest=low[0] if low else None,
                latest=high[1] if high else None,
                speaker=_speaker(raw, rank, node, reading.name),
                seq=int(seq) if seq and len(seq) < 16 else None,
                op=raw.groups.get("op", ""),
                code=code,
                survived=foreign,
                tasks=tuple(numbers(raw.groups.get("tasks", ""))[:100_000]),
                frames=_frames(raw.around) if raw.row.role == "root" else "",
            )
        )
        found += [replace(found[-1], peer=other) for other in named[1:NAMED]]
    return found


def _elsewhere(raw: Raw, reading: FileReading, places: Places) -> bool:
    """Does a log of the cluster speak here of one machine that is not on the job's list?"""
    node = raw.groups.get("node", "")
    if not node or "[" in node or "," in node or raw.row.blames != "reporter" or not places.listed:
        return False
    return raw.row.role != "context" and is_kernel(reading) and places.host(node) is None


def _named(raw: Raw, places: Places) -> list[str]:
    """The nodes that a line on others speaks of, as Slurm lists them; those of this job, where some are."""
    if raw.row.blames != "peer" or not raw.groups.get("node"):
        return []
    names = (
        expand(raw.groups["node"]) if "[" in raw.groups["node"] or "," in raw.groups["node"] else [raw.groups["node"]]
    )
    ours = [node for name in names if (node := places.host(name)) is not None]
    return ours or names


def _who(raw: Raw, file: str, places: Places, blocks: Sequence[Block]) -> tuple[int | None, str | None]:
    label = raw.label
    if label == Label() and (host := places.section(file, raw.line)) is not None:
        label = replace(label, node=host)
    rank, node = places.resolve(label, file)
    groups = raw.groups
    if "rank" in groups and len(groups["rank"]) < 8:
        rank = int(groups["rank"])
        node = places.node(rank) or (node if raw.label.rank == rank else None)
    elif "ranks" in groups and (named := re.match(r"\d{1,7}", groups["ranks"].strip())):
        rank = int(named[0])
        node = places.node(rank)
    if raw.row.blames == "reporter" and groups.get("node") and "[" not in groups["node"]:
        node = places.host(groups["node"]) or groups["node"]
    if rank is None and "pci" in groups and node is not None:
        rank = places.rank_of_bus.get((node, bus_of(groups["pci"]) or ""))
    if raw.row.kind == "launcher-exit":
        return _launcher_exit(raw, file, places, node)
    if raw.row.kind.startswith("srun-") or "tasks" in groups:
        tasks = numbers(groups.get("tasks", ""))
        return (tasks[0] if len(tasks) == 1 and not places.tasks_are_nodes else None), node
    if raw.row.blames == "nobody" and raw.row.category.startswith("scheduler."):
        return None, None
    pid = groups.get("pid") or groups.get("monitor")
    if pid and len(pid) < 12 and raw.label.pid is None:
        if node is None and raw.row.kind.startswith("launcher-"):
            node = places.node_of_pid.get(int(pid))  # it stands in the report of that very process
        known = places.by_pid.get((node, int(pid)))
        rank = known[0] if known else rank
    names_its_own = "node" in groups or raw.row.blames == "peer"
    if rank is None and raw.row.role == "root" and raw.label.node is None and not names_its_own:
        block = _block_of(raw, blocks)
        if block is not None:
            return block.rank, block.node
    return rank, node


def _foreign(pid: str | None, node: str | None, places: Places) -> bool:
    """The process that the driver names is none of ours, and all of ours on that node are known."""
    if pid is None or len(pid) > 10 or node is None or not places.per_node:
        return False
    ours = {known for home, known in places.by_pid if home == node}
    return len(ours) >= places.per_node and int(pid) not in ours


_OF_THE_DEVICE: Final = frozenset({"xid-gpu", "xid-memory", "xid-nvlink"})
"""Faults that a device has whoever uses it: the process that the driver names only met them."""


def _during(low: tuple[float, float] | None, high: tuple[float, float] | None, clocks: Clocks) -> bool:
    """Was this surely said while the job ran, or soon after its last word?"""
    if low is None or high is None or clocks.start is None or clocks.end is None:
        return False
    return clocks.start <= low[0] and high[1] <= clocks.end + SLACK_S


def _on_ours(raw: Raw, node: str | None, places: Places) -> bool:
    """Does the driver speak of a device that the job has? The processes of a container have other numbers outside of it."""
    ours = {bus for home, bus in places.rank_of_bus if home == node}
    return bus_of(raw.groups.get("pci")) in ours if ours else raw.row.kind in _OF_THE_DEVICE


def _launcher_exit(raw: Raw, file: str, places: Places, node: str | None) -> tuple[int | None, str | None]:
    pid, local = int(raw.groups["pid"][:12]), int(raw.groups["local"][:4])
    node = places.node_of_file.get(file) or places.node_of_pid.get(pid) or node
    known = places.by_pid.get((node, pid))
    return (known[0] if known and known[0] is not None else places.rank(node, local)), node


def _block_of(raw: Raw, blocks: Sequence[Block]) -> Block | None:
    """Whose a line without a rank may be, by the launchers' reports: the same local rank, earliest; else the next report."""
    if raw.label.local is not None:
        same = [block for block in blocks if block.local == raw.label.local and block.code not in (-15, None)]
        return min(same, key=lambda b: (b.time, b.line), default=None)
    after = [block for block in blocks if block.line > raw.line]
    return after[0] if after else None


def _srun_ends(reading: FileReading, places: Places) -> list[Block]:
    """The word of srun on a task that ended by itself, as a launcher's report."""
    ends = []
    for raw in reading.raws:
        if raw.row.kind in ("srun-exited", "srun-killed", "srun-sigkill") and (node := raw.groups.get("node")):
            tasks = numbers(raw.groups.get("tasks", ""))
            rank = tasks[0] if len(tasks) == 1 and not places.tasks_are_nodes else None
            ends.append(Block(reading.name, raw.line, node, rank, None, None, 1, ""))
    return ends


def _speaker(raw: Raw, rank: int | None, node: str | None, file: str) -> str:
    if rank is not None:
        return f"rank {rank}"
    label = raw.label
    if label.pid is not None:
        return f"{file} pid {label.pid}"
    return f"{file} {node or ''} {label.local if label.local is not None else ''}"


def _frames(around: str) -> str:
    found = next((name for name, form in _FRAMES if form.search(around)), "")
    innermost = around.rsplit("\n", 1)[-1]
    return found or ("framework" if _FRAMEWORK.search(innermost) else "kernels" if _KERNELS.search(innermost) else "")


def _idle(readings: Sequence[FileReading], clocks: Clocks, clues: Sequence[Clue]) -> float | None:
    """Seconds from the last step to the cancellation, when that is long against the time of a step; else None."""
    at = sorted(
        {
            with_year(mark.stamp, clocks.near) + clocks.of_file[reading.name].shift
            for reading in readings
            for mark in reading.marks
            if mark.stamp is not None and not is_kernel(reading)
        }
    )
    stopped = [clue.earliest for clue in clues if clue.kind == "cancelled" and clue.earliest is not None]
    if len(at) < 3 or not stopped:
        return None
    idle, usual = min(stopped) - at[-1], median(b - a for a, b in zip(at[-9:], at[-8:], strict=False))
    return idle if idle > max(600.0, 10 * usual) else None


LAST_LINES: Final = 3
"""A script's last word is one of so many last lines of its log."""


def _finished(clues: Sequence[Clue], readings: Sequence[FileReading]) -> Clue | None:
    """The trainer's word that it has reached its end: in words that say so, or by a plain "Done." that ends a log of steps."""
    said = next((c for c in clues if c.kind == "finished" and not c.survived), None)
    ends = {r.name: r.lines for r in readings if len(r.marks) > 1}
    return said or next(
        (c for c in clues if c.kind == "finished-word" and c.line > ends.get(c.file, c.line) - LAST_LINES), None
    )


def _last_words(readings: Sequence[FileReading], places: Places) -> dict[int, LastWords]:
    words: dict[int, LastWords] = {}
    for reading in readings:
        rank = places.rank_of_file.get(reading.name)
        if rank is not None and reading.words is not None and rank not in words:
            steps = [m.step for m in reading.marks if m.step is not None and m.line <= reading.words[0]]
            words[rank] = LastWords(reading.name, reading.words[0], max(steps, default=None), reading.words[1])
    for reading in readings:
        for line, text in reading.own_words:
            rank, _ = places.resolve(read_label(text), reading.name)
            if rank is not None:
                words.setdefault(rank, LastWords(reading.name, line, None, text))
    for reading in readings:
        # In a log of several ranks the last words are those of the rank that they name; of its steps they say nothing.
        rank = read_label(reading.words[1]).rank if reading.words is not None else None
        if reading.words is not None and rank is not None:
            words.setdefault(rank, LastWords(reading.name, reading.words[0], None, reading.words[1]))
    return words


def _of_a_job(reading: FileReading) -> bool:
    """One word like `step 3` is in many a log; two, or a line that only launchers and trainers write, are of a job."""
    return len(reading.marks) > 1 or any(raw.row.kind.startswith(("layout-", "activity-")) for raw in reading.raws)


def _ending(readings: Sequence[FileReading]) -> LastWords | None:
    """The last line of the log that tells of the latest step; without steps, of the longest log of the job."""
    logs = [(r, r.words) for r in readings if r.words is not None and not is_kernel(r) and _of_a_job(r)]
    steps = {r.name: max((m.step for m in r.marks if m.step is not None), default=-1) for r, _ in logs}
    if not logs:
        return None
    reading, (line, text) = max(logs, key=lambda one: (steps[one[0].name], one[0].lines))
    step = steps[reading.name]
    return LastWords(reading.name, line, step if step >= 0 else None, text)


def _stacks(readings: Sequence[FileReading], places: Places) -> list[Stack]:
    found = []
    for reading in readings:
        for raw in reading.raws:
            if raw.row.kind != "layout-stack":
                continue
            body = re.split(r"\n(?=Process \d+: )", raw.around.lstrip("\f"))[0]
            doing = read_stack(body)
            if doing is not None:
                rank, node = places.resolve(raw.label, reading.name)
                found.append(Stack(reading.name, raw.line, rank, node, *doing))
    return found


def _pace(readings: Sequence[FileReading]) -> Pace | None:
    """A lasting change of the time per step, of 3 % or more and clear of the jitter; None when there is none."""
    for reading in readings:
        marks = [mark for mark in reading.marks if mark.seconds]
        if len(marks) < 6:
            continue
        times = [mark.seconds or 0.0 for mark in marks]
        third = max(2, len(times) // 4)
        before, after = median(times[:third]), median(times[-third:])
        jitter = max(abs(t - before) for t in times[:third])
        if before > 0 and after > 1.03 * before and after - before > 3 * jitter:
            middle = (before + after) / 2
            changed = next(m for m, t in zip(marks, times, strict=True) if t > middle)
            return Pace(before, after, reading.name, changed.line)
    return None
