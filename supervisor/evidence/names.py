"""Names: of hosts in lists, of ranks and hosts in the names of files, of tasks in ranges. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final

_HOSTLIST: Final = re.compile(r"([A-Za-z][\w-]*?)\[([\d,-]+)\]|([A-Za-z][\w-]*)")
_RANK_FILE: Final = re.compile(
    r"(?:^|[._-])(?:rank|task|worker|proc|global_rank)[._-]?(\d{1,6})(?:[._-]|$)", re.IGNORECASE
)
_HOST_NAME: Final = re.compile(r"[A-Za-z][A-Za-z]*[A-Za-z0-9-]*\d+")
_NO_HOST: Final = re.compile(
    r"^(rank|task|log|output|out|err|slurm|job|node|main|train|part|attempt|cycle|app|worker|step|stderr|stdout|r|v|run|exp|epoch|gpu"
    r"|shard|restart|try|proc(ess)?|p|pid|pg|group|stage|phase|level|ckpt|test|eval|seed|cuda|nccl|local_?rank|global_?rank)[._-]?\d*$",
    re.IGNORECASE,
)
NODES: Final = 100_000
"""Names or numbers that one list may stand for; what claims more is cut."""


_WORDS: Final = re.compile(
    r"slurm(d|ctld|stepd)?|logs?|job|trace|stacks?|dcgmi?|nccl|output|out|err|train(er)?|diag|journal(ctl)?|dmesg|messages"
    r"|kern(el|log)?|kmsg|syslog|rank|task|node|stdout|stderr|host|worker|pod|pyspy|(nv|rocm|amd|xpu)?-?smi|nvsmi|k|r\d|\d+"
    r"|sel|ipmi(tool)?|bmc|redfish|fabricmanager|fm|nvsm|health|nhc|console|serial|mcelog|edac|ras|ib(diag|stat)?|rdma|ethtool"
    r"|lustre|prolog|epilog|launch(er)?|torchrun|audit|boot|events|lspci|ps|top|sar|df|dmidecode|perfquery|diagnostics?",
    re.IGNORECASE,
)


def expand(text: str) -> list[str]:
    """A Slurm host list, or names with spaces or commas between -> names in the given order. Not more than NODES."""
    names: list[str] = []
    for prefix, ranges, plain in _HOSTLIST.findall(text):
        if plain:
            names.append(plain)
            continue
        for part in ranges.split(","):
            first, _, last = part.partition("-")
            if not first.isdigit() or (last and not last.isdigit()):
                continue
            width, begin, end = len(first), int(first), int(last or first)
            if end - begin > NODES:
                continue
            names.extend(f"{prefix}{number:0{width}d}" for number in range(begin, end + 1))
    return names[:NODES]


def natural(name: str) -> list[tuple[int, int, str]]:
    """A key that puts n9 before n10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def numbers(text: str) -> list[int]:
    """`0-57,59` as numbers; what is no such list gives none."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if (
            first.isdigit()
            and (not last or last.isdigit())
            and len(part) < 16
            and int(last or first) - int(first) < NODES
        ):
            found.extend(range(int(first), int(last or first) + 1))
    return found


def file_rank(name: str) -> int | None:
    """The rank (or task) that a file's name gives."""
    match = _RANK_FILE.search(os.path.basename(name).split(".log")[0].split(".out")[0])
    return int(match[1]) if match else None


def file_node(name: str, nodes: frozenset[str]) -> str | None:
    """The node that a file's name gives: the longest known name that stands in it between separators."""
    for base in reversed(name.split("/")[-4:]):  # its own name, else that of a folder that it lies in
        cuts = [0, *(m.end() for m in re.finditer(r"[._-]", base[:255]))]
        ends = [*(m.start() for m in re.finditer(r"[._-]", base[:255])), len(base)]
        found = {base[i:j] for i in cuts for j in ends if i < j} & nodes
        if found:
            return max(found, key=len)
    return None


PARTS: Final = 4
"""Parts of a file's name, as dots divide it, in which a host is looked for."""

_LOCAL_FILE: Final = re.compile(r"(?:^|/)attempt_\d{1,4}/(\d{1,3})/(?:stdout|stderr)\.log$")
_NUMBERED: Final = re.compile(r"^(\d{1,6})(?:\.(?:log|out|err|txt|stdout|stderr|gz))+$")


def file_local(name: str) -> int | None:
    """The local rank of a file as torchrun's `--log-dir` names it: `attempt_0/3/stderr.log`."""
    match = _LOCAL_FILE.search(name)
    return int(match[1]) if match else None


def numbered(names: Iterable[str]) -> dict[str, int]:
    """Files of a folder that are called after ranks and nothing else: `00.log` to `31.log`, none left out."""
    folders: dict[str, dict[str, int]] = {}
    for name in names:
        if match := _NUMBERED.match(os.path.basename(name)):
            folders.setdefault(os.path.dirname(name), {})[name] = int(match[1])
    return {
        name: number
        for files in folders.values()
        if len(files) > 2 and set(files.values()) == set(range(max(files.values()) + 1))  # two could be two runs
        for name, number in files.items()
    }


def stem_node(name: str) -> str | None:
    """A file that is called after a host: `om-2.log`, `slurm-1457443-dgx-021.out`, `dmesg.qz-n03.txt`."""
    for part in os.path.basename(name).split(".")[:PARTS]:
        node, words = _host_in(part)
        if node is not None or not words:
            return node
    return None


def _host_in(part: str) -> tuple[str | None, bool]:
    """The host that a part of a file's name is called after, or None; were there only words that say what the file is?"""
    parts = re.split(r"([-._])", part)
    words, seps = parts[::2], parts[1::2]
    while words and _WORDS.fullmatch(words[0]):
        words, seps = words[1:], seps[1:]
    while words and _WORDS.fullmatch(words[-1]) and not words[-1].isdigit():
        words, seps = words[:-1], seps[:-1]
    stem = "".join(w + s for w, s in zip(words, [*seps, ""], strict=False))
    if not _HOST_NAME.fullmatch(stem) or _NO_HOST.match(stem) or len(stem) > 63:
        return None, not stem
    # Five digits and more are the number of a job, unless they are filled up with zeros: nid002118.
    return (None if re.search(r"\d{5,}$", stem) and not re.search(r"[A-Za-z]0\d+$", stem) else stem), False
