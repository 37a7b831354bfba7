"""The checks that a plan asks for: the only place that knows them all. Each looks out of process, or at what can't hang."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from supervisor.agent.health import command, disk, nvml, nvrx
from supervisor.agent.health.child import Child, Ran
from supervisor.agent.health.clock import ClockStep
from supervisor.agent.health.memory import Memory
from supervisor.agent.health.plan import Plan
from supervisor.agent.health.results import Check, Verdict, unknown

_SAFE: Final = {"PYTHONSAFEPATH": "1"}
"""Our own folder is no place to import from: its files have common names."""


@dataclass(frozen=True, slots=True)
class Asks:
    """One child and what its answer means."""

    name: str
    child: Child
    judge: Callable[[Ran], Verdict]

    @property
    def names(self) -> tuple[str, ...]:
        """See Check."""
        return (self.name,)

    async def look(self) -> dict[str, Verdict]:
        """See Check."""
        return {self.name: self.judge(await self.child.ask())}


@dataclass(frozen=True, slots=True)
class Says:
    """A check that is known not to be possible here."""

    name: str
    why: str

    @property
    def names(self) -> tuple[str, ...]:
        """See Check."""
        return (self.name,)

    async def look(self) -> dict[str, Verdict]:
        """See Check."""
        return {self.name: unknown(self.why)}


class Gpus:
    """The GPUs by NVML; as many as were ever seen must be there."""

    names = ("gpus",)

    def __init__(self, child: Child, read: Callable[[Ran], tuple[nvml.Gpu, ...] | str]) -> None:
        self._child = child
        self._read = read
        self._most = 0

    async def look(self) -> dict[str, Verdict]:
        """See Check."""
        seen = self._read(await self._child.ask())
        if not isinstance(seen, str):
            self._most = max(self._most, len(seen))
        return {"gpus": nvml.judge(seen, self._most)}


def checks_of(plan: Plan, baselines: str) -> list[Check]:
    """Everything to look at in one round. `baselines`: a folder on this node for what must outlive a look."""
    checks: list[Check] = [_disk(path, plan.deadline_s) for path in dict.fromkeys(plan.paths)]
    checks += [Memory(), ClockStep(), _gpus(plan), _nvrx(plan, baselines)]
    for argv in plan.commands:
        checks.append(Asks(f"command {os.path.basename(argv[0])}", Child(argv, plan.deadline_s), command.judge))
    return _each_once(checks)


def _disk(path: str, deadline_s: float) -> Check:
    child = Child([sys.executable, "-I", "-S", disk.__file__, path], deadline_s)
    return Asks(f"disk {path}", child, lambda ran: disk.judge(path, ran))


def _gpus(plan: Plan) -> Check:
    """NVML says more than nvidia-smi; what NVRx is installed with has it."""
    python = sys.executable if importlib.util.find_spec("pynvml") is not None else plan.nvrx_python
    if python:
        return Gpus(Child([python, nvml.CHILD], plan.deadline_s, _SAFE), nvml.from_child)
    if shutil.which(nvml.SMI[0]) is not None:
        return Gpus(Child(nvml.SMI, plan.deadline_s), nvml.from_smi)
    return Says("gpus", "neither pynvml nor nvidia-smi is here")


def _nvrx(plan: Plan, baselines: str) -> Check:
    if not plan.nvrx_python and importlib.util.find_spec(nvrx.PACKAGE) is None:
        return Says("nvrx", f"{nvrx.PACKAGE} is not installed")
    return nvrx.Nvrx(Child([plan.nvrx_python or sys.executable, nvrx.CHILD, baselines], plan.deadline_s, _SAFE))


def _each_once(checks: list[Check]) -> list[Check]:
    """Two commands of one name would answer for each other."""
    seen: set[str] = set()
    once: list[Check] = []
    for check in checks:
        name, number = check.names[0], 2
        while name in seen:
            name, number = f"{check.names[0]} ({number})", number + 1
        if name != check.names[0] and isinstance(check, Asks):
            check = Asks(name, check.child, check.judge)  # noqa: PLW2901
        seen.update(check.names)
        once.append(check)
    return once
