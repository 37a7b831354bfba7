"""Who is speaking: the labels of rank, local rank, task, node and process that a line carries. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from supervisor.evidence.kernelwords import is_kernels

HEAD: Final = 1200
"""Characters of a line in which a label is looked for: a progress bar may stand before it."""


@dataclass(frozen=True, slots=True)
class Label:
    """What a line says of its speaker; None is not said."""

    rank: int | None = None
    local: int | None = None
    task: int | None = None  # of `srun --label` and its like: a rank only where each rank is a task
    node: str | None = None
    pid: int | None = None
    ip: str | None = None


_RANK: Final = (
    re.compile(r"(?:^|\W)\[rank[ :=]?(\d{1,6})\]", re.IGNORECASE),
    re.compile(r"\[(?:PG [^\]]{0,80}?)?Rank (\d{1,6})\]"),
    re.compile(r"\b[Rr]ank[=:] ?(\d{1,6})\b"),
    re.compile(r"^\s*[Rr]ank (\d{1,6})\b"),
    re.compile(r"\b[Rr]ank (\d{1,6}): "),
    re.compile(r"\bon rank (\d{1,6})\b"),
    re.compile(r"\boperation \w+ from rank (\d{1,6})\b"),
    re.compile(r"\(R(?:ANK|ank) (\d{1,6})\)|\bGLOBAL_RANK[=:] ?(\d{1,6})\b"),
    re.compile(r"(?:\[\d{1,5}|@\d{1,5}),(?:mpirank:)?(\d{1,6})(?:,[\w-]+)?\]<std(?:err|out)>:"),
)
_LOCAL: Final = (
    re.compile(r"^\s*\[(?:default|local_rank|rank-local )(\d{1,3})\]:?"),
    re.compile(r"\blocal[_ ]rank[=:]? ?(\d{1,3})\b"),
    re.compile(r"--local[_-]rank[= ](\d{1,3})\b"),
)
_TASK: Final = re.compile(r"^\s*(\d{1,6}): ")
_NCCL: Final = re.compile(r"(?:^|[\]\s:>|])([A-Za-z][\w-]{0,62})(?:\.[\w.-]+)?:(\d{1,8}):(\d{1,8}) \[(\d{1,3})\] ")
_NATIVE: Final = re.compile(r"(?:^|\s)\[([A-Za-z][\w-]{0,62})(?:\.[\w.-]+)? ?:(\d{2,8}) ?(?::\d+ ?:\d+)?\]")
_RAY: Final = re.compile(r"\(\w+(?:\([^)]*\))? pid=(\d+)(?:, ip=([\d.]+))?\)")
_KERNEL: Final = re.compile(
    r"(?<![+-])\d\d:\d\d(?:\.\d+|,\d+(?![\d+Z-]))?(?:Z|[+-]\d\d:?\d\d| (?:UTC|GMT|[CEMP][SD]T|CES?T|[BIJK]ST))?"
    r" ([A-Za-z][\w-]{0,62})(?:\.[\w.-]+)? [\w.()-]+(?:\[\d+\])?: "
)
"""`host program[pid]: ` behind a time. One with a comma and a zone is dmesg's own (`--time-format=iso`): no host stands there."""

_PDSH: Final = re.compile(r"^([A-Za-z][\w-]{0,62}): ")
_PDSH_RANK: Final = re.compile(r"^([A-Za-z][\w-]{0,62}): +(?:\[rank|\[20\d\d-|rank[ =:])", re.IGNORECASE)
_CONSOLE: Final = re.compile(
    r"^<([A-Za-z][\w-]{0,62})(?:\.[\w.-]+)?> |^\[([A-Za-z][\w-]*\d)(?:\.[\w.-]+)?\] (?=\[? *\d+\.\d|\[?20\d\d-|\[?\w{3} \w{3} )"
    r"|^<\d{1,3}>1 20\S{8,30} ([A-Za-z][\w-]{0,62})(?:\.[\w.-]+)? "
    r"|^([A-Za-z][\w-]{0,61}\d[\w-]{0,20})(?:\.[\w.-]+)?(?:: ?| \| | )(?=\[ *\d{1,9}\.\d{3,9}\] |\[\w{3} \w{3} [ \d]\d )"
    r"|^1[5-9]\d{8}\.\d{6} ([A-Za-z][\w-]{0,62})(?:\.[\w.-]+)? [\w.()-]+(?:\[\d+\])?: "
    r"|^([A-Za-z][\w-]{0,62})(?:\.[\w.-]+)? (?:kernel|login): ?(?=\[ *\d{1,9}\.\d{3,9}\] |\[\w{3} \w{3} [ \d]\d )"
)
"""What stands before the lines of a machine's console, and in those of a collector of logs (RFC 5424). A serial line has its
prompt there: `n31 login: [318111.402211] mlx5_core ...`.
"""

_STAMPED: Final = re.compile(
    r"^\[?20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,]*(?:Z|[+-]\d\d:?\d\d)?\]? "
    r"\[(?!(?:main|thread|worker|fork|pool|proc|rank|gpu|local|task|spawn|actor|shard|[dtpec]p|iter|step|epoch|pg|pid)\w*[-_]?\d)"
    r"([A-Za-z][A-Za-z-]{0,40}\d[\w-]{0,20})(?:\.[\w.-]+)?\] ",
    re.IGNORECASE,
)
"""A host in brackets behind the time, as many formats of loggers have it; threads and ranks stand there too."""

_POD: Final = re.compile(r"^\[pod/([A-Za-z][\w-]{0,62})/[\w-]+\] |^\[\d{1,5},mpirank:\d{1,6},([\w-]{1,63})\]<std")
_HOST: Final = re.compile(
    r"\brank[ =:]{1,2}\d{1,6}\b.{0,48}?(?<!to )\b(?:host(?:name)?|node(?:_?name)?)[\"']?[=:] ?[\"']?([A-Za-z][\w-]{0,62})\b",
    re.IGNORECASE,
)
_NOT_NODES: Final = frozenset(
    [
        "srun",
        "slurmstepd",
        "slurmctld",
        "slurmd",
        "sbatch",
        "error",
        "warning",
        "info",
        "debug",
        "traceback",
        "pyxis",
        "enroot",
        "kernel",
        "wandb",
        "note",
        "file",
        "mpirun",
        "conman",
        "exception",
        "terminate",
        "what",
        "frame",
        "fatal",
        "hint",
        "raise",
        "return",
        "import",
        "critical",
        "root",
        "cause",
        "failures",
        "time",
        "host",
        "rank",
        "exitcode",
        "nvrm",
        "nvidia",
        "runtimeerror",
        "valueerror",
        "assertionerror",
        "oserror",
        "keyerror",
        "typeerror",
        "nccl",
        "loss",
        "step",
        "epoch",
        "train",
        "lustre",
        "lustreerror",
        "nfs",
        "mce",
        "bash",
        "python",
        "python3",
        "sh",
        "iter",
        "iteration",
        "it",
    ],
)


def read_label(line: str) -> Label:
    """Everything that the line says of its speaker. The line has no colours any more."""
    head = line[:HEAD]
    if (at := head.find("] NCCL INFO ")) >= 0:
        head = head[: at + 12]  # what follows is of peers, not of the speaker
    low = head.lower()
    # Most lines carry one label at most: what can't be there is not searched for.
    ranked = "rank" in low or "]<std" in low
    rank = next((int(m[m.lastindex or 1]) for form in _RANK if (m := form.search(head))), None) if ranked else None
    local = (
        next((int(m[1]) for form in _LOCAL if (m := form.search(head))), None)
        if (ranked and "local" in low) or "[default" in low
        else None
    )
    task = int(m[1]) if (m := _TASK.match(head)) else None
    node = ip = None
    pid = None
    if "] NCCL" not in head and "NCCL WARN" not in head and rank is not None:
        return Label(rank, local, task, _host_of_rank(head, low), None, None)
    if m := _NCCL.search(head):
        node, pid, local = m[1], int(m[2]), int(m[4])
    elif m := _NATIVE.search(head):
        node, pid = m[1], int(m[2])
    elif m := _RAY.search(head):
        pid, ip = int(m[1]), m[2]
    elif (
        (m := _KERNEL.search(head))
        or ((m := _PDSH.match(head)) and any(c.isdigit() for c in m[1]))
        or (m := _PDSH_RANK.match(head) or _POD.match(head) or _CONSOLE.match(head) or _STAMPED.match(head))
    ):
        node = m[m.lastindex or 1]
    return Label(rank, local, task, _node(node), pid, ip)


def _host_of_rank(head: str, low: str) -> str | None:
    """The host that stands before a rank's label (pdsh, DeepSpeed, kubectl) or that the rank tells itself."""
    forms = (_PDSH_RANK, _POD, _HOST) if "host" in low or "node" in low else (_PDSH_RANK, _POD)
    for form in forms:
        if m := form.search(head):
            return _node(m[1] or m[form.groups])
    if (m := _PDSH.match(head)) and any(c.isdigit() for c in m[1]):
        return _node(m[1])
    return None


def _node(name: str | None) -> str | None:
    """The name, unless it is a word that stands where names do."""
    if name is None:
        return None
    low = name.lower()
    word = low in _NOT_NODES or low.startswith(("rank", "default")) or low.endswith(("error", "exception", "warning"))
    return None if word or is_kernels(name) else name
