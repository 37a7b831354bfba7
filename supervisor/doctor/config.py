"""slurm.conf as slurmctld has it now, judged. Pure: the text of `scontrol show config` in, verdicts out.

Sources: slurm.conf(5) of 22.05 to 26.05, and what was seen on such clusters (docs/slurm.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from slurm.commands import CLEAR_S
from supervisor.doctor.machine import SLURMS
from supervisor.doctor.verdict import Check
from supervisor.errors import HALTED_EXIT, NOT_YET_EXIT, OWN_FAULT_EXIT, REFUSED_EXIT

_OURS: Final = (1, 2, NOT_YET_EXIT, REFUSED_EXIT, OWN_FAULT_EXIT)
"""Other codes that `relight run` ends with; a job that ends with one of them wants a person, not a requeue."""
_ADMIN: Final = "ask the cluster's administrators for"


def parse(text: str) -> dict[str, str]:
    """Key -> value; the first of a key stands. What is set to nothing is `(null)`."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition(" = ")
        if equals and re.fullmatch(r"[A-Za-z0-9_\[\]]+", key.strip()):
            found.setdefault(key.strip(), value.strip())
    return found


def judge(config: Mapping[str, str]) -> tuple[Check, ...]:
    """Every check, in order. A key that is not there is unknown, not right."""
    return tuple(check(config) for check in CHECKS)


def seconds(value: str | None) -> int | None:
    """`10 sec` is 10."""
    found = re.fullmatch(r"(\d{1,9})(?: sec)?", value or "")
    return int(found[1]) if found else None


def version(config: Mapping[str, str]) -> Check:
    """Was relight tried on slurmctld's version?"""
    seen = config.get("SLURM_VERSION", "")
    found = re.match(r"(\d{1,4})\.(\d{1,4})", seen)
    if found is None:
        return _missing("slurm-version", "SLURM_VERSION")
    if (int(found[1]), int(found[2])) in SLURMS:
        return Check("slurm-version", "ok", seen)
    tried = ", ".join(f"{year}.{month:02d}" for year, month in SLURMS)
    return Check("slurm-version", "warn", f"{seen}, not tried", f"relight was tried on {tried}: try a small job first")


def proctrack(config: Mapping[str, str]) -> Check:
    """Does Slurm find every process of a step when it ends one?"""
    seen = config.get("ProctrackType")
    if seen is None:
        return _missing("proctrack", "ProctrackType")
    if seen == "proctrack/cgroup":
        return Check("proctrack", "ok", seen)
    text = f"{seen}: what a task starts while its step is being killed can be left behind"
    right = f"{_ADMIN} proctrack/cgroup; relight's agents end what older attempts have left as well"
    return Check("proctrack", "warn", text, right)


def slurmd_timeout(config: Mapping[str, str]) -> Check:
    """A round of pings takes twice MessageTimeout while a node hangs; nodes that are well must not be taken for down."""
    timeout, message = seconds(config.get("SlurmdTimeout")), seconds(config.get("MessageTimeout"))
    if timeout is None or message is None:
        return _missing("slurmd-timeout", "SlurmdTimeout or MessageTimeout")
    text = f"SlurmdTimeout {timeout} s, MessageTimeout {message} s"
    if timeout == 0:
        right = "nothing for relight, which probes by itself; a node that is lost stays in its job until somebody acts"
        return Check("slurmd-timeout", "warn", f"{text}: Slurm never declares a node down", right)
    if timeout <= 2 * message:
        right = f"{_ADMIN} SlurmdTimeout over {2 * message} s; 300 s is Slurm's own"
        return Check("slurmd-timeout", "warn", f"{text}: while one node hangs, others are taken for down", right)
    return Check("slurmd-timeout", "ok", text)


_LOST_STEPD_S: Final = round(CLEAR_S) + 15
"""What a step may take to end with a lost node in it, and some more for the messages. Chosen."""


def unkillable(config: Mapping[str, str]) -> Check:
    """What is not over after that time has its node drained: a rank that hangs in a driver, or a slurmstepd that waits for a lost
    one below it (63 s and more, docs/slurm.md) in a job that somebody cancels.
    """
    limit, message = seconds(config.get("UnkillableStepTimeout")), seconds(config.get("MessageTimeout"))
    if limit is None or message is None:
        return _missing("unkillable", "UnkillableStepTimeout or MessageTimeout")
    text, least = f"UnkillableStepTimeout {limit} s", max(_LOST_STEPD_S, 5 * message)
    if limit >= least:
        return Check("unkillable", "ok", text)
    right = f"{_ADMIN} {least} s at least ({_LOST_STEPD_S} s, or 5 x MessageTimeout)"
    return Check("unkillable", "warn", f"{text}: after a lost node, a job that is cancelled has others drained", right)


def return_to_service(config: Mapping[str, str]) -> Check:
    """With 2, a node that was declared down is given to jobs again though nobody has looked at it."""
    seen = config.get("ReturnToService")
    if seen not in {"0", "1", "2"}:
        return _missing("return-service", "ReturnToService")
    if seen != "2":
        return Check("return-service", "ok", f"ReturnToService {seen}")
    text = "ReturnToService 2: a node that was declared down comes back though nobody has looked at it"
    return Check("return-service", "warn", text, f"{_ADMIN} 0 or 1; relight's own bars hold in any case")


def bad_exit(config: Mapping[str, str]) -> Check:
    """Who starts ranks without relight's srun gets this default."""
    seen = config.get("KillOnBadExit")
    if seen not in {"0", "1"}:
        return _missing("bad-exit", "KillOnBadExit")
    beside = "" if seen == "0" else "; relight's own srun says 0, so the evidence is there to be taken"
    return Check("bad-exit", "ok", f"KillOnBadExit {seen}{beside}")


def requeue(config: Mapping[str, str]) -> Check:
    """Is a job requeued when the batch host is lost, unless it says otherwise?"""
    seen = config.get("JobRequeue")
    if seen not in {"0", "1"}:
        return _missing("requeue", "JobRequeue")
    if seen == "1":
        return Check("requeue", "ok", "JobRequeue 1")
    right = "`relight sbatch`, which asks for it; in a script of your own `#SBATCH --requeue`"
    return Check("requeue", "warn", "JobRequeue 0: only a job that asks for it may be requeued", right)


def requeue_exit(config: Mapping[str, str]) -> Check:
    """Does this site requeue jobs by their exit codes? A halted run must stay halted."""
    asked = config.get("RequeueExit"), config.get("RequeueExitHold")
    if None in asked:
        return _missing("requeue-exit", "RequeueExit or RequeueExitHold")
    try:
        codes, held = (_codes(value or "") for value in asked)
    except ValueError as error:
        return Check("requeue-exit", "unknown", f"RequeueExit can't be understood: {error}", _by_hand("RequeueExit"))
    text = f"RequeueExit {asked[0]}, RequeueExitHold {asked[1]}"
    right = f"{_ADMIN} it without {HALTED_EXIT}, or give your jobs `--no-requeue`: who has halted waits for a person"
    if HALTED_EXIT in codes:
        return Check("requeue-exit", "bad", f"{text}: a halted run ({HALTED_EXIT}) would be started again", right)
    met = sorted((codes | held) & {*_OURS, HALTED_EXIT})
    if met:
        listed = ", ".join(map(str, met))
        right = f"{_ADMIN} it without {listed}: relight ends with these when a person is wanted"
        return Check("requeue-exit", "warn", f"{text}: jobs that end with {listed} are requeued or held", right)
    return Check("requeue-exit", "ok", text)


def _codes(value: str) -> frozenset[int]:
    """`1-9,18`. Raises ValueError."""
    if value in {"", "(null)"}:
        return frozenset()
    found: set[int] = set()
    for word in value.split(","):
        first, _, last = word.partition("-")
        low, high = int(first), int(last or first)
        if not 0 <= low <= high <= 255:
            raise ValueError(f"{word[:40]!r} is no range of exit codes")
        found.update(range(low, high + 1))
    return frozenset(found)


def _missing(name: str, key: str) -> Check:
    return Check(name, "unknown", f"`scontrol show config` does not tell {key}", _by_hand(key.split(maxsplit=1)[0]))


def _by_hand(key: str) -> str:
    return f"look by hand: scontrol show config | grep {key}"


CHECKS: Final[tuple[Callable[[Mapping[str, str]], Check], ...]] = (
    version,
    proctrack,
    slurmd_timeout,
    unkillable,
    return_to_service,
    bad_exit,
    requeue,
    requeue_exit,
)
