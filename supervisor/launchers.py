"""Torchrun in a training command: taken apart, so that one of it is started on each node and every rank has its shim. Pure.

Options are those of torch 2.13 (torch/distributed/run.py). Which ranks run where, where they meet, and how often they are
started again is ours to say; all else goes to torchrun as it stands.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from supervisor.errors import UserError

MODULE: Final = "torch.distributed.run"
PYTHON: Final = "{python}"
"""Filled in on the node: the interpreter that torchrun runs in."""

_FLAGS: Final = frozenset({"--standalone", "-m", "--module", "--no-python", "--run-path", "--virtual-local-rank"})
_OURS: Final = frozenset({
    "--nnodes", "--nproc-per-node", "--node-rank", "--master-addr", "--master-port", "--rdzv-backend", "--rdzv-endpoint",
    "--rdzv-id", "--rdzv-conf", "--standalone", "--max-restarts", "-m", "--module", "--no-python",
})  # fmt: skip
_REFUSED: Final = {
    "--run-path": "give the script's path itself",
    "--virtual-local-rank": "relight tells each rank its own LOCAL_RANK",
}


@dataclass(frozen=True, slots=True)
class Split:
    """`launcher`: torchrun with the options that stay. `command`: what one rank runs. `each`: ranks a node, where it says so."""

    launcher: tuple[str, ...]
    command: tuple[str, ...]
    each: int | None


def split(command: Sequence[str]) -> Split | None:
    """Take a command apart; None when it is no torchrun. Raises UserError for what can't be run under relight."""
    head = _head(command)
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
            raise UserError(f"torchrun {name} can't be used under relight: {_REFUSED[name]}")
        seen[name] = value
        if name not in _OURS:
            kept += taken
    script = command[at:]
    if not script:
        raise UserError("torchrun is given no script")
    each = seen.get("--nproc-per-node", "")
    return Split(tuple(kept), _rank(script, seen), int(each) if each.isascii() and each.isdigit() else None)


def check(command: Sequence[str], ranks_per_node: int) -> None:
    """Raise UserError where the command is a torchrun that contradicts the layout, or can't be run under relight."""
    found = split(command)
    if found is not None and found.each not in {None, ranks_per_node}:
        raise UserError(
            f"torchrun --nproc-per-node {found.each}, but layout.ranks_per_node is {ranks_per_node}: make them agree"
        )


def _head(command: Sequence[str]) -> int:
    """How many words name torchrun; 0 when they don't."""
    if os.path.basename(command[0]) == "torchrun":
        return 1
    words = list(command[:4])
    if "-m" in words[1:3] and os.path.basename(words[0]).startswith("python"):
        at = words.index("-m")
        return at + 2 if words[at + 1 : at + 2] == [MODULE] else 0
    return 0


def _rank(script: Sequence[str], seen: dict[str, str]) -> tuple[str, ...]:
    if "--no-python" in seen:
        return tuple(script)
    return (PYTHON, "-u", *(("-m",) if {"-m", "--module"} & set(seen) else ()), *script)
