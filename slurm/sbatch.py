"""A job script as sbatch would read it, and what has to be said beside it so that relight can supervise the job. Pure.

Options on sbatch's command line stand above the script's own `#SBATCH` lines, so the script is submitted as it is. Sources:
sbatch(1), and what was seen on 22.05 to 26.05 (docs/slurm.md).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_LONG: Final = {
    "N": "nodes", "n": "ntasks", "a": "array", "s": "oversubscribe", "w": "nodelist", "G": "gpus", "k": "no-kill",
    "J": "job-name", "t": "time", "p": "partition", "A": "account", "o": "output", "e": "error", "c": "cpus-per-task",
    "C": "constraint", "D": "chdir", "d": "dependency", "b": "begin", "q": "qos", "x": "exclude", "F": "nodefile",
    "m": "distribution", "H": "hold", "i": "input", "L": "licenses", "S": "core-spec", "W": "wait", "B": "extra-node-info",
}  # fmt: skip
"""The short options of sbatch and the long ones that mean the same."""
_FLAGS: Final = frozenset({"hold", "wait", "oversubscribe", "no-kill"})
"""Short options that take no value."""


class ConflictError(Exception):
    """What the script asks for and what relight needs can't both be had; the message says where, and what would be right."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of the script. `value` None where it has none; `line` counts from 1."""

    name: str
    value: str | None
    line: int


@dataclass(frozen=True, slots=True)
class Ask:
    """What is submitted: `words` go to sbatch before the script. `nodes` for the training, `spares` beside them."""

    words: tuple[str, ...]
    nodes: int
    spares: int


def options(text: str) -> tuple[Option, ...]:
    """The `#SBATCH` lines, up to the first line that is a command, as sbatch reads them. Raises ConflictError."""
    found: list[Option] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            break
        if not line.startswith("#SBATCH"):
            continue
        try:
            words = shlex.split(line.removeprefix("#SBATCH"), comments=True)
        except ValueError as error:
            raise ConflictError(f"line {number}: {error}: {stripped}") from None
        found += _read(words, number)
    return tuple(found)


def _read(words: list[str], line: int) -> list[Option]:
    found: list[Option] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "hetjob":
            raise ConflictError(
                f"line {line}: heterogeneous jobs (hetjob) are not supported: one job, one kind of nodes"
            )
        if word.startswith("--"):
            name, joined, value = word[2:].partition("=")
            takes = not joined and bool(rest) and not rest[0].startswith("-")
            found.append(Option(name, value if joined else rest.pop(0) if takes else None, line))
        elif re.match(r"-[A-Za-z]", word):
            name = _LONG.get(word[1], word[1])
            value = word[2:].removeprefix("=")
            takes = not value and name not in _FLAGS and bool(rest) and not rest[0].startswith("-")
            found.append(Option(name, value or (rest.pop(0) if takes else None), line))
    return found


REFUSED: Final = {
    "array": "one run is one job: submit it once for each run",
    "no-requeue": "a run outlives its jobs by a requeue: take it away",
    "hold": "every job of the run would be held, the next ones too: take it away, and hold this one with scontrol hold",
    "oversubscribe": "nodes must be the run's alone: --exclusive, or nothing",
    "gpus": "it is a total, and would not grow with the spares: say --gpus-per-node",
    "time-min": "the job may get less time than it is planned for: say --time alone",
    "nodefile": "the nodes are Slurm's to choose, so that there are spares: take it away",
}
"""Options that can't be, and what would be right."""


def ask(text: str, spares: int, carry: Mapping[str, str] | None = None, passed: tuple[str, ...] = ()) -> Ask:
    """Work out what to say beside the script; `carry` are variables for its environment, `passed` those of whoever submits
    that have to reach it too. Raises ConflictError with the line.
    """
    seen = {one.name: one for one in options(text)}  # the last of a name stands, as with sbatch
    for name, why in REFUSED.items():
        if name in seen:
            raise ConflictError(f"line {seen[name].line}: --{name}: {why}")
    if (mode := seen.get("open-mode")) and (mode.value or "").startswith("t"):
        raise ConflictError(f"line {mode.line}: --open-mode=truncate would lose the log of the job before: say append")
    if (kill := seen.get("no-kill")) and kill.value == "off":
        raise ConflictError(f"line {kill.line}: --no-kill=off: one lost node would end the job: take it away")
    nodes = _nodes(seen.get("nodes"))
    words = [f"--nodes={nodes + spares}", "--no-kill", "--requeue", "--open-mode=append"]
    words += [] if "exclusive" in seen else ["--exclusive"]
    words += _export(seen.get("export"), carry or {}, passed)
    words += _tasks(seen.get("ntasks"), nodes, spares)
    if (chosen := seen.get("nodelist")) and spares:
        raise ConflictError(
            f"line {chosen.line}: --nodelist names the nodes, and {spares} more are wanted as spares: "
            "take it away, or --spares 0 with the spares in the list"
        )
    return Ask(tuple(words), nodes, spares)


def _export(given: Option | None, carry: Mapping[str, str], passed: tuple[str, ...]) -> list[str]:
    """A list of variables is a whole one, so ours are added. NONE stands alone (sbatch(1))."""
    said = given.value if given and given.value else "ALL"
    if given and said.upper() in {"NONE", "NIL"}:
        if carry:
            names = ", ".join(carry)
            raise ConflictError(
                f"line {given.line}: --export={said}: {names} can't be given beside it: set it in the script"
            )
        return []
    more = [] if said.split(",")[0].upper() == "ALL" else list(passed)
    added = [*more, *(f"{name}={value}" for name, value in carry.items())]
    return ["--export=" + ",".join([said, *added])] if added else []


def _nodes(given: Option | None) -> int:
    if given is None or not given.value:
        raise ConflictError("no #SBATCH --nodes=N: how many nodes the training needs must be said (spares not counted)")
    if not re.fullmatch(r"[1-9]\d{0,5}", given.value, re.ASCII):
        raise ConflictError(f"line {given.line}: --nodes={given.value}: a fixed number is wanted, such as --nodes=640")
    return int(given.value)


def _tasks(given: Option | None, nodes: int, spares: int) -> list[str]:
    """With fewer tasks than nodes Slurm takes nodes away, so a total has to grow with them."""
    if given is None or not spares:
        return []
    total = int(given.value) if given.value and re.fullmatch(r"[1-9]\d{0,8}", given.value, re.ASCII) else 0
    if not total or total % nodes:
        raise ConflictError(
            f"line {given.line}: --ntasks={given.value} is no multiple of the {nodes} nodes: say --ntasks-per-node"
        )
    return [f"--ntasks={total // nodes * (nodes + spares)}"]


_CALL: Final = re.compile(r"(?:^|[\s;&|/])relight\s+run\b|-m\s+supervisor\s+run\b")


_AS_STEP: Final = re.compile(r"(?:^|[\s;&|/])srun\s[^;&|]*(?:\brelight\s+run\b|-m\s+supervisor\s+run\b)")


def as_step(text: str) -> int | None:
    """The line, from 1, in which `relight run` is started by srun: a controller on every node; None where none is."""
    lines = enumerate(text.splitlines(), 1)
    return next((at for at, line in lines if _AS_STEP.search(line) and not line.lstrip().startswith("#")), None)


def calls_relight(text: str) -> bool:
    """Does the script call `relight run` anywhere but in a comment?"""
    return any(_CALL.search(line) for line in text.splitlines() if not line.lstrip().startswith("#"))
