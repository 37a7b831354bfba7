"""One bounded step over all nodes of a job: started as relight starts its agents, each task reports and then takes part.

srun is ended with everything that it started, whatever happens; a task ends by itself when nobody is connected any more.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from slurm.launching import STEP
from supervisor.doctor import probe
from supervisor.doctor.meeting import Task, Tried, meet

TURNS: Final = 16
"""Names that all nodes want at once: 640 nodes make 10,240 tries, which a file server does in seconds."""
GRACE_S: Final = 5.0
_SAID_MAX: Final = 65_536
_ERROR = re.compile(r"^(?:srun|slurmstepd)\S*: error: (.{1,300})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the step runs: the job, its nodes, the folder of the run's scratch, and how nodes reach us (`address`)."""

    job: str
    nodes: tuple[str, ...]
    folder: str
    address: str
    options: tuple[str, ...] = ()
    munge: tuple[str, ...] = ()


@dataclass(slots=True)
class Heard:
    """Reports by node, why nodes could not connect, what srun said, and what came of the trials."""

    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    said: str = ""
    tried: Tried = field(default_factory=Tried)

    @property
    def errors(self) -> list[str]:
        """Lines of srun that begin with `srun: error:`."""
        return _ERROR.findall(self.said)


async def run(place: Place, env: Mapping[str, str], deadline_s: float, tell: Callable[[str], None]) -> Heard:
    """Run the step. `env`: for Slurm's commands; the file `nonce` lies in the folder. Raises OSError."""
    heard = Heard()
    of = len(place.nodes)

    def crew(task: Task) -> Any:
        return _srun(place, env, task, heard)

    heard.tried = await meet(
        place.folder,
        of,
        crew,
        name=lambda hello: _known(hello.get("node"), place.nodes),
        more={"host": place.address, "report": True, "munge": list(place.munge)},
        bind="0.0.0.0",  # noqa: S104 - nodes come from elsewhere; a token is asked of each
        turns=TURNS,
        deadline_s=deadline_s,
        tell=lambda number: tell(f"{number:,} of {of:,} nodes have answered"),
    )
    heard.reports |= heard.tried.reports  # those over the connections do not wait for srun
    return heard


def _known(name: object, nodes: Sequence[str]) -> str:
    return name if isinstance(name, str) and name in nodes else ""


def command(place: Place, hosts: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """The words of srun, and what they need in the environment: the same as for the agents' step."""
    words = (
        "srun",
        f"--jobid={place.job}",
        f"--ntasks={len(place.nodes)}",
        *STEP,
        "--job-name=relight-doctor",
        *place.options,
        "--gres=none",
        sys.executable,
        "-P",
        os.path.abspath(probe.__file__),
    )
    return words, {"SLURM_HOSTFILE": hosts}


@asynccontextmanager
async def _srun(place: Place, env: Mapping[str, str], task: Task, heard: Heard) -> AsyncIterator[Awaitable[object]]:
    with tempfile.NamedTemporaryFile("w", prefix="relight-doctor-hosts-", encoding="ascii") as hosts:
        hosts.writelines(f"{node}\n" for node in place.nodes)
        hosts.flush()
        words, more = command(place, hosts.name)
        process = await asyncio.create_subprocess_exec(
            *words,
            env={**env, **more, "RELIGHT_DOCTOR": json.dumps(task)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=probe.LINE_MAX,
            start_new_session=True,
        )
        readers = [asyncio.create_task(_reports(process, place, heard)), asyncio.create_task(_words(process, heard))]
        try:
            yield asyncio.gather(*readers)
            # What the tasks have printed takes longer through srun than their connections take to us.
            await asyncio.wait(readers, timeout=GRACE_S)
        finally:
            await _end(process)
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)


async def _reports(process: asyncio.subprocess.Process, place: Place, heard: Heard) -> None:
    """What tasks print: each node's first report counts, and nothing else does."""
    assert process.stdout is not None  # noqa: S101 - it was asked for
    while True:
        try:
            line = await process.stdout.readline()
        except ValueError:  # longer than any report; what follows it is read on
            continue
        if not line:
            return
        text = line.decode("utf-8", "replace")
        if not text.startswith(probe.REPORT):
            continue
        with suppress(ValueError, RecursionError):
            told = json.loads(text.removeprefix(probe.REPORT))
            node = _known(told.get("node"), place.nodes) if isinstance(told, dict) else ""
            if node and "link" in told:
                heard.links.setdefault(node, str(told["link"])[:200])
            elif node:
                heard.reports.setdefault(node, told)


async def _words(process: asyncio.subprocess.Process, heard: Heard) -> None:
    assert process.stderr is not None  # noqa: S101 - it was asked for
    while data := await process.stderr.read(4096):
        heard.said = (heard.said + data.decode("utf-8", "replace"))[-_SAID_MAX:]


async def _end(process: asyncio.subprocess.Process) -> None:
    """`srun` ends its step when it is asked to; only a srun that does not is killed."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await process.wait()
