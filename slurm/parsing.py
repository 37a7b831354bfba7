"""What Slurm's commands print, read strictly. Pure: the texts go in, rows come out, and a line that isn't one raises.

Formats are those that are the same from 22.05 to 26.05. A field that people can fill (a reason, a step's name) stands
last in its line, so that whatever is written there can't move the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Final

from slurm import hostlist
from slurm.cluster import TaskEnd
from slurm.states import Phase, phase

JOB_FORMAT: Final = "%A|%T|%S|%N|%B|%r"
"""For `squeue -h -o`: id, state, start, nodes, batch host, reason."""

TIMES_FORMAT: Final = "EndTime:|,PreemptTime:|,Requeue:|"
"""For `squeue -h -O`, asked in UTC."""

LEFT_FORMAT: Final = "JobID:|,Requeue:|,TimeLeft:|"
"""For `squeue -h -O`. Without a time limit EndTime is no end, and TimeLeft says so."""

WAITING_FORMAT: Final = "%A|%E|%j"
"""For `squeue -h -o`: id, dependency, name."""

STEP_FORMAT: Final = "StepID:|,StepState:|,Nodes:|,StepName:|"
"""For `squeue -s -h -O`. With `:|` and no width nothing is cut (a name of 120 letters was tried)."""

NODE_FORMAT: Final = "NodeList:|,StateComplete:|,NodeAddr:|,Reason:|"
"""For `sinfo -h -N -O`."""

_STEP_ID = re.compile(r"[\d_+]+\.(?:[\d+]+|batch|extern|interactive|TBD)")
_PORT = re.compile(r"(?:^| )Port=(\d{1,5})(?: |$)")
_ADDRESS = re.compile(r"(?:^| )NodeAddr=(\S+)")
_JOB_NAME = re.compile(r"(?:^| )JobName=(.*?) UserId=")
_EXCLUDED = re.compile(r"(?:^| )ExcNodeList=(\S+)")
_SWITCH = re.compile(r"(?:(?<!\S)SwitchName=(\S+) Level=0|(?<!\S)BlockName=(\S+) BlockIndex=\d+) (?:.* )?Nodes=(\S+)")
_TASKS = re.compile(
    r"srun: error: ([^\s:]+): tasks? ([\d,-]+): "
    r"(Exited with exit code \d+|Killed|Terminated|Aborted|Segmentation fault|Bus error|Floating point exception"
    r"|Illegal instruction|Hangup|Interrupt|Quit|Broken pipe|User defined signal [12]|CPU time limit exceeded"
    r"|Out Of Memory|Trace/breakpoint trap|Alarm clock|Bad system call|Unknown signal \d+|Real-time signal \d+)"
    r"(?: \(core dumped\))?"
)
_SIGNALS: Final = {
    "Hangup": 1, "Interrupt": 2, "Quit": 3, "Illegal instruction": 4, "Trace/breakpoint trap": 5, "Aborted": 6, "Bus error": 7,
    "Floating point exception": 8, "Killed": 9, "Out Of Memory": 9, "User defined signal 1": 10, "Segmentation fault": 11,
    "User defined signal 2": 12, "Broken pipe": 13, "Alarm clock": 14, "Terminated": 15, "CPU time limit exceeded": 24,
    "Bad system call": 31,
}  # fmt: skip
"""Srun's words for signals (signal(7), Linux on x86 and Arm). Out Of Memory is what it calls a SIGKILL by the memory limit."""

_FIRST_REAL_TIME: Final = 34  # SIGRTMIN of the C library
_COMPLAINTS: Final = 16


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job. `state` is Slurm's word; `nodes` are those that it holds now, in Slurm's order.

    `start` is when it began (UTC, as Slurm writes it): a job that is requeued keeps its id and gets another start.
    """

    id: str
    state: str
    phase: Phase
    start: str
    nodes: tuple[str, ...]
    batch_host: str
    reason: str


@dataclass(frozen=True, slots=True)
class JobTimes:
    """When a job ends, and since when it is being preempted: wall seconds, None where Slurm does not say. May it be requeued?

    From the moment of a preemption on `ends_at` is the end of its grace time.
    """

    ends_at: float | None = None
    preempted_at: float | None = None
    requeue: bool = False


@dataclass(frozen=True, slots=True)
class JobLeft:
    """May a job be requeued, and for how long does it run yet: seconds, infinite without a limit. None: Slurm does not say."""

    requeue: bool | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class ListedStep:
    """One step as Slurm lists it; `id` as `scancel` takes it. `nodes` stays the same until the whole step is over."""

    id: str
    state: str
    phase: Phase
    nodes: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True)
class ListedNode:
    """One node as Slurm lists it."""

    name: str
    state: str
    address: str
    reason: str


def job(text: str, number: str) -> JobRow | None:
    """The row of one job from `squeue -o JOB_FORMAT`; None when it is not among the lines. Raises ValueError."""
    for line in _lines(text):
        one, state, start, nodes, batch_host, reason = _fields(line, 6)
        if one == number:
            return JobRow(
                one, state, phase(state), _word(start), hostlist.expand(nodes), _word(batch_host), _word(reason)
            )
    return None


def times(text: str) -> JobTimes:
    """Of `squeue -O TIMES_FORMAT` for one job. Raises ValueError."""
    lines = _lines(text)
    if len(lines) != 1:
        raise ValueError(f"not one job: {text[:200]!r}")
    ends, preempted, requeue, *_ = [field.strip() for field in lines[0].split("|")]
    return JobTimes(_moment(ends), _moment(preempted), requeue == "1")


def left(text: str, number: str) -> JobLeft | None:
    """Of `squeue -O LEFT_FORMAT`; None when the job is not among the lines. Raises ValueError."""
    for line in _lines(text):
        one, requeue, left_text, *_ = _fields(line, 4)
        if one == number:
            return JobLeft({"1": True, "yes": True, "0": False, "no": False}.get(requeue), _duration(left_text))
    return None


def _duration(field: str) -> float | None:
    """`[D-][HH:]MM:SS`, seconds; None for INVALID, NOT_SET and their like."""
    if field == "UNLIMITED":
        return inf
    found = re.fullmatch(r"(?:(\d{1,5})-)?(?:(\d{1,2}):)?(\d{1,2}):(\d{2})", field, re.ASCII)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def maintenance(text: str) -> tuple[tuple[float, tuple[str, ...]], ...]:
    """Begin (wall seconds) and nodes of each maintenance, from `scontrol -o show reservation`. Raises ValueError."""
    found = []
    for line in _lines(text):
        words = dict(word.partition("=")[::2] for word in line.split())
        begins = _moment(words.get("StartTime", ""))
        if begins is not None and "MAINT" in words.get("Flags", "").split(","):
            found.append((begins, hostlist.expand(_word(words.get("Nodes", "")))))
    return tuple(found)


def excluded(text: str) -> str:
    """The nodes that a job was not to get, from `scontrol -o show job`; a hostlist, empty where there are none."""
    match = _EXCLUDED.search(text)
    return _word(match[1]) if match else ""


def job_name(text: str) -> str:
    """The name of a job, from `scontrol -o show job`. Raises ValueError."""
    match = _JOB_NAME.search(text)
    if match is None:
        raise ValueError(f"no JobName: {text[:200]!r}")
    return match[1]


def waiting_for(text: str, number: str, name: str) -> str:
    """The job of this name that waits for the end of job `number`, from `squeue -o WAITING_FORMAT`; empty where none does."""
    for line in _lines(text):
        one, _, rest = line.strip().partition("|")
        what, _, called = rest.partition("|")
        if one.isdigit() and called == name.strip() and re.search(rf"\bafterany:(?:\d+:)*{number}\b", what):
            return one
    return ""


def steps(text: str) -> tuple[ListedStep, ...]:
    """Rows of `squeue -s -O STEP_FORMAT`. Raises ValueError."""
    found = []
    for line in _lines(text):
        one, state, nodes, name = _fields(line, 4)
        if not _STEP_ID.fullmatch(one):
            raise ValueError(f"not a step: {line[:200]!r}")
        found.append(ListedStep(one, state, phase(state), hostlist.expand(nodes), _unended(name)))
    return tuple(found)


def nodes(text: str) -> dict[str, ListedNode]:
    """Rows of `sinfo -N -O NODE_FORMAT` by name; a node of several partitions comes once. Raises ValueError."""
    found = {}
    for line in _lines(text):
        names, state, where, reason = _fields(line, 4)
        for name in hostlist.expand(names):
            found[name] = ListedNode(name, state, _word(where) or name, _word(_unended(reason)))
    return found


def address(text: str) -> tuple[str, int] | None:
    """Where the slurmd of a node listens, from `scontrol -o show node`; None where it is not said."""
    host, port = _ADDRESS.search(text), _PORT.search(text)
    if host is None or port is None or not 0 < int(port[1]) < 65536:
        return None
    return host[1], int(port[1])


def switches(text: str) -> dict[str, str]:
    """Leaf switch of each node, or its block where the topology is one of blocks, from `scontrol -o show topology`.

    One that is named by several lines belongs to the one with the fewest nodes. Raises ValueError.
    """
    groups = []
    for line in text.splitlines():
        match = _SWITCH.search(line)
        if match:
            groups.append((match[1] or match[2], hostlist.expand(match[3])))
    found: dict[str, str] = {}
    for name, members in sorted(groups, key=lambda group: -len(group[1])):
        found |= dict.fromkeys(members, name)
    return found


def ended_nodes(said: str, hosts: Sequence[str]) -> frozenset[str]:
    """Nodes of which srun has said that every task on them ended badly. Task i of the step is on `hosts[i]`.

    A line counts only where each of its tasks is on one of its nodes; whoever is not named may still run. Of tasks that
    ended with 0 srun says nothing.
    """
    left: dict[str, set[int]] = {}
    for task, host in enumerate(hosts):
        left.setdefault(host, set()).add(task)
    everything: Mapping[str, frozenset[int]] = {host: frozenset(tasks) for host, tasks in left.items()}
    for line in said.splitlines():
        match = _TASKS.fullmatch(line)
        if match is None:
            continue
        try:
            names = hostlist.expand(match[1])
            tasks = {int(number) for number in hostlist.expand(f"[{match[2]}]")}
        except ValueError:
            continue
        if tasks <= frozenset().union(*(everything.get(name, frozenset()) for name in names)):
            for name in names:
                left.get(name, set()).difference_update(tasks)
    return frozenset(host for host, tasks in left.items() if not tasks)


def task_ends(said: str, hosts: Sequence[str]) -> tuple[TaskEnd, ...]:
    """Tasks of which srun says that they ended badly, in its order, each once. Task i of the step is on `hosts[i]`.

    A line that names a task on a node where it is not is none of srun's; one that does not say which of several it is on
    goes by `hosts`. A code above 128 is a signal that the task's own parent has seen, as shells say it.
    """
    found: dict[int, TaskEnd] = {}
    for line in said.splitlines():
        match = _TASKS.fullmatch(line)
        if match is None:
            continue
        try:
            names = hostlist.expand(match[1])
            tasks = [int(number) for number in hostlist.expand(f"[{match[2]}]")]
        except ValueError:
            continue
        code, signal = _end_of(match[3])
        for task in tasks:
            if task < len(hosts) and hosts[task] in names:
                found.setdefault(task, TaskEnd(task, len(hosts), hosts[task], line, code, signal))
    return tuple(found.values())


def complaints(said: str) -> tuple[str, ...]:
    """What srun and slurmstepd complain of, but for the ends of tasks: each line once, the first ones."""
    lines = (line for line in said.splitlines() if line.startswith(("srun: error: ", "slurmstepd: error: ")))
    return tuple(dict.fromkeys(line for line in lines if not _TASKS.fullmatch(line)))[:_COMPLAINTS]


def _end_of(words: str) -> tuple[int | None, int | None]:
    """(code, signal) of what srun says."""
    last = words.rsplit(maxsplit=1)[-1]
    if words.startswith("Exited"):
        code = int(last)
        return (None, code - 128) if 128 < code < 160 else (code, None)
    if words.startswith("Unknown"):
        return None, int(last)
    return None, _FIRST_REAL_TIME + int(last) if words.startswith("Real-time") else _SIGNALS[words]


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def _fields(line: str, count: int) -> list[str]:
    fields = line.split("|", count - 1)
    if len(fields) != count or not all(field.strip() for field in fields[:2]):
        raise ValueError(f"not {count} fields: {line[:200]!r}")
    return [field.strip() for field in fields]


def _unended(field: str) -> str:
    """Without the bar that ends the last field of `-O`."""
    return field.removesuffix("|").strip()


def _moment(field: str) -> float | None:
    """UTC, as Slurm writes it; None for N/A, NONE, Unknown and their like."""
    try:
        return datetime.strptime(field, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _word(field: str) -> str:
    """Slurm writes "none", "n/a" and "(null)" where there is nothing."""
    return "" if field.lower() in {"none", "n/a", "(null)"} else field
