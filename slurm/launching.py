"""The `srun` of a step: started once for a name, in a session of its own, and found again by whoever comes later.

Beside the launch order of a step (`localfiles`) lie `STEP.claim`, made exclusively by whoever starts it or forbids it,
`STEP.hosts` (a node a task) and `STEP.exit` (srun's own code). The claim is made by the process that becomes the parent
of srun, right before it starts it. So a controller that dies while it asks leaves either no claim, or a srun.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from slurm import localfiles, processes
from slurm.cluster import LaunchSpec
from slurm.once import write_once

_LAUNCHER: Final = """
head=$1 mine=$2 claim=$3 exit=$4
shift 4
(
  trap '' HUP
  read -r stat </proc/self/stat
  printf '%s\\n' "$head" "$stat" >"$mine" && link "$mine" "$claim" 2>/dev/null && echo started || { rm -f "$mine"; exit; }
  rm -f "$mine"
  exec >&2
  "$@"
  code=$?
  echo "$code" >"$mine" && mv -f "$mine" "$exit"
) &
"""
"""A shell, because 641 of them may live beside the controller for weeks: 1 MB each. All arguments are words of their own."""

TASK: Final = ("/bin/sh", "-c", 'unset SLURM_PTY_PORT; exec "$@" >>"$RELIGHT_OUTPUT" 2>&1', "sh")
"""Before a task's own words. It opens its output itself: what is written through srun ends in SIGPIPE once srun is gone."""

_KEEP_GOING: Final = {"SLURM_PTY_PORT": "0"}
"""Without it srun kills the whole step when a node resets its connection, as one does that has booted again; `--no-kill`
does not prevent that (seen on 22.05.8 and 24.11.5). srun spares whoever has this set (step_launch.c,
step_launch_notify_io_failure), and uses it for nothing else unless a terminal was asked for."""

_AGENT = re.compile(r"\.agents?\.(?:.+\.)?e\d+\.\d+")
_TAIL: Final = 1 << 20  # bytes of srun's words that are read; what it says of 10,000 nodes fits


@dataclass(frozen=True, slots=True)
class Claim:
    """Who has taken a name. `pid` is 0 where it was forbidden and never started. `wall`: seconds, when it was taken."""

    job: str
    host: str
    boot: str
    wall: float
    pid: int = 0
    start_ticks: int = 0
    session: int = 0

    @property
    def started(self) -> bool:
        """Was a srun started for it?"""
        return self.pid > 0

    @property
    def here(self) -> bool:
        """Was it started on this machine, since its last boot, and where processes have the numbers that we see?"""
        return (self.host, self.boot) == (os.uname().nodename, _boot())


def path(run_dir: str, step: str, what: str) -> str:
    """A file beside the order: `claim`, `hosts` or `exit`. Raises ValueError for a bad name."""
    return f"{run_dir}/nodes/orders/{localfiles.good_name(step)}.{what}"


STEP: Final = (
    "--distribution=arbitrary",
    "--overlap",
    "--kill-on-bad-exit=0",
    "--wait=0",
    "--no-kill",
    "--input=none",
)
"""What every srun over nodes of a job is told: the order of the nodes is ours, and Slurm kills nothing by itself."""


def command(job: str, order: LaunchSpec, options: Sequence[str]) -> tuple[str, ...]:
    """The srun of an order. Never `-N`, which newer versions refuse beside a hostfile; nothing is killed for us."""
    agent = ("--gres=none",) if _AGENT.search(order.name) else ()
    return (
        "srun",
        f"--jobid={job}",
        f"--ntasks={len(order.hosts)}",
        *STEP,
        f"--chdir={order.cwd}",
        f"--job-name={order.name}",
        *options,
        *agent,
        *TASK,
        *order.argv,
    )


def start(
    run_dir: str, job: str, order: LaunchSpec, argv: Sequence[str], env: Mapping[str, str], deadline_s: float
) -> bool:
    """Start `argv` for this order unless the name is taken; answers whether it was. Raises OSError, TimeoutError included."""
    hosts = path(run_dir, order.name, "hosts")
    temporary = f"{hosts}.{secrets.token_hex(8)}.tmp"
    with open(temporary, "w", encoding="ascii") as file:
        file.writelines(f"{host}\n" for host in order.hosts)
    os.replace(temporary, hosts)
    claim, exit_path = path(run_dir, order.name, "claim"), path(run_dir, order.name, "exit")
    head = json.dumps({"schema": 1, "job": job, **_place()}, separators=(",", ":"))
    mine = f"{claim}.{secrets.token_hex(8)}.tmp"
    os.makedirs(os.path.dirname(order.output), mode=0o700, exist_ok=True)
    full = dict(env) | dict(order.env)
    full |= {"RELIGHT_STEP": order.name, "RELIGHT_RUN_DIR": run_dir, "RELIGHT_OUTPUT": order.output}
    full |= {"SLURM_HOSTFILE": hosts} | _KEEP_GOING
    with open(order.output, "ab") as output:
        launcher = subprocess.Popen(
            ["/bin/sh", "-c", _LAUNCHER, "relight-launch", head, mine, claim, exit_path, *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            env=full,
            cwd=run_dir,
            start_new_session=True,
        )
    try:
        said, _ = launcher.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(launcher.pid, signal.SIGKILL)
        launcher.communicate()
        raise TimeoutError(f"{order.name}: {run_dir} was too slow to take the claim") from None
    if said == b"started\n":
        return True
    if read_claim(run_dir, order.name) is None:
        raise OSError(f"{order.name}: no claim could be made in {os.path.dirname(claim)}")
    return False


def forbid(run_dir: str, job: str, step: str) -> Claim:
    """Take the name so that it never starts, unless it has; the claim that stands now. Raises OSError, ValueError."""
    os.makedirs(f"{run_dir}/nodes/orders", exist_ok=True)
    write_once(path(run_dir, step, "claim"), {"schema": 1, "job": job, **_place()})
    claim = read_claim(run_dir, step)
    if claim is None:
        raise OSError(f"{step}: its claim has vanished")
    return claim


def read_claim(run_dir: str, step: str) -> Claim | None:
    """Who has taken the name, if anybody. Raises OSError, and ValueError for a file that is not of this form."""
    try:
        with open(path(run_dir, step, "claim"), encoding="utf-8") as file:
            head, _, stat = file.read(65536).partition("\n")
    except FileNotFoundError:
        return None
    try:
        place = _place_of(head)
        if not stat.strip():
            return Claim(*place)
        # proc(5), stat: behind the name in brackets stand state, parent, group, session; the start time is field 22.
        fields = stat[stat.rindex(")") + 2 :].split()
        return Claim(*place, pid=int(stat.split()[0]), start_ticks=int(fields[19]), session=int(fields[3]))
    except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
        raise ValueError(f"{step}.claim: {error!r}") from error


def exit_code(run_dir: str, step: str) -> int | None:
    """With what srun ended; None while it has not, or when nobody was left to write it down."""
    try:
        with open(path(run_dir, step, "exit"), encoding="ascii", errors="replace") as file:
            return int(file.read(16))
    except (FileNotFoundError, ValueError):
        return None


def lives(claim: Claim) -> bool:
    """Is the parent of its srun alive on this machine?"""
    return claim.started and claim.here and processes.alive(claim.pid, claim.start_ticks)


def end(run_dir: str, step: str, claim: Claim, deadline_s: float) -> bool:
    """Kill srun and its parent, if they are on this machine; True when nothing of them is left here."""
    if not (claim.started and claim.here):
        return True
    mark = {"RELIGHT_STEP": step, "RELIGHT_RUN_DIR": run_dir}
    until, ours = time.monotonic() + deadline_s, False
    while True:  # again until it is empty: a process may have forked between the look and the signal
        found = processes.members(claim.session)
        # Once the parent is gone, its session's number may be somebody else's: one member has to carry our names then.
        # Who has been seen to be ours stays so: of a process that is just ending the names can't be read any more.
        ours = ours or lives(claim) or any(processes.holds(one.pid, mark) for one in found)
        if not ours or not found:
            return True
        pids = [one.pid for one in found]
        processes.send(pids, signal.SIGKILL)
        if not processes.wait_gone(pids, until - time.monotonic()):
            return False


def said(output: str) -> str:
    """The last megabyte of what srun and the tasks have written; empty when there is nothing to be read."""
    try:
        with open(output, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            return file.read(_TAIL).decode(errors="replace")
    except OSError:
        return ""


def _place_of(head: str) -> tuple[str, str, str, float]:
    document = json.loads(head)
    if document["schema"] != 1:
        raise ValueError(f"schema {document['schema']!r}")
    return str(document["job"]), str(document["host"]), str(document["boot"]), float(document["wall"])


def _place() -> dict[str, object]:
    return {"host": os.uname().nodename, "boot": _boot(), "wall": time.time()}


def _boot() -> str:
    return f"{localfiles.boot_id()} {processes.pid_space()}"
