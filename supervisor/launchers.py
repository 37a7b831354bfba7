"""A launcher in a training command, taken apart: one of it is started on each node, and every rank gets its shim. Pure.

Options are those of torchrun in torch 2.13 (torch/distributed/run.py); ft_launcher of NVRx 0.7.0 knows the same and its own.
Which ranks run where, where they meet, and how often they are started again is ours to say; all else goes to the launcher
as it stands.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from supervisor.errors import UserError

MODULE: Final = "torch.distributed.run"
FT_MODULE: Final = "nvidia_resiliency_ext.fault_tolerance.launcher"
PYTHON: Final = "{python}"
"""Filled in on the node: the interpreter that the launcher runs in."""

_SAME: Final = ("--nnodes={nodes}", "--nproc-per-node={each}", "--max-restarts=0")
"""It never starts a rank again: who has died is ours to find out before anything goes on."""

_MEET: Final = {
    MODULE: ("--node-rank={slot}", "--master-addr={master_addr}", "--master-port={master_port}"),
    FT_MODULE: ("--rdzv-backend=c10d", "--rdzv-endpoint={master_addr}:{master_port}", "--rdzv-id={run}"),
}
"""Torchrun meets without asking: the slot is the node's rank. ft_launcher always asks, and orders nodes by CROSS_SLURM_PROCID."""

_FLAGS: Final = frozenset({
    "--standalone", "-m", "--module", "--no-python", "--run-path", "--virtual-local-rank", "--ft-ignore-missing-cfg",
})  # fmt: skip
_OURS: Final = frozenset({
    "--nnodes", "--nproc-per-node", "--node-rank", "--master-addr", "--master-port", "--rdzv-backend", "--rdzv-endpoint",
    "--rdzv-id", "--rdzv-conf", "--standalone", "--max-restarts", "-m", "--module", "--no-python",
})  # fmt: skip
_PROGRAMS: Final = {"torchrun": MODULE, "ft_launcher": FT_MODULE}
_REFUSED: Final = {
    "--run-path": "give the script's path itself",
    "--virtual-local-rank": "relight tells each rank its own LOCAL_RANK",
}


@dataclass(frozen=True, slots=True)
class Split:
    """`launcher`: its words, to be filled in on the node. `command`: what one rank runs. `each`: ranks a node, where it says so."""

    launcher: tuple[str, ...]
    command: tuple[str, ...]
    each: int | None


def split(command: Sequence[str]) -> Split | None:
    """Take a command apart; None when it is no launcher. Raises UserError for what can't be run under relight."""
    module, head = _head(command)
    if head == 0:
        return None
    kept, seen, at = [*command[:head]], dict[str, str](), head
    while at < len(command) and command[at].startswith("-") and command[at] != "-":
        word, at = command[at], at + 1
        name, equals, value = word.partition("=")
        name = name.replace("_", "-") if name.startswith("--") else name
        taken = [word]
        if not equals and name not in _FLAGS:
            value, taken, at = " ".join(command[at : at + 1]), [*command[at - 1 : at + 1]], at + 1
        if name in _REFUSED:
            raise UserError(f"{name} of a launcher can't be used under relight: {_REFUSED[name]}")
        seen[name] = value
        if name not in _OURS:
            kept += taken
    script = command[at:]
    if not script:
        raise UserError(f"{command[0]} is given no script")
    each = seen.get("--nproc-per-node", "")
    return Split(
        (*kept, *_SAME, *_MEET[module]), _rank(script, seen), int(each) if each.isascii() and each.isdigit() else None
    )


def check(command: Sequence[str], ranks_per_node: int) -> None:
    """Raise UserError where the command is a launcher that contradicts the layout, or can't be run under relight."""
    found = split(command)
    if found is not None and found.each not in {None, ranks_per_node}:
        raise UserError(
            f"--nproc-per-node is {found.each}, but layout.ranks_per_node is {ranks_per_node}: make them agree"
        )


def _head(command: Sequence[str]) -> tuple[str, int]:
    """Which launcher it is, and how many words name it; 0 when none does."""
    program = os.path.basename(command[0])
    if program in _PROGRAMS:
        return _PROGRAMS[program], 1
    words = list(command[:4])
    if "-m" in words[1:3] and program.startswith("python"):
        at = words.index("-m")
        module = "".join(words[at + 1 : at + 2])
        return module, at + 2 if module in _MEET else 0
    return "", 0


def _rank(script: Sequence[str], seen: dict[str, str]) -> tuple[str, ...]:
    if "--no-python" in seen:
        return tuple(script)
    return (PYTHON, "-u", *(("-m",) if {"-m", "--module"} & set(seen) else ()), *script)
