"""What can be known of a Slurm cluster from any of its machines, without a job and without changing anything."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from slurm import parsing
from slurm.calls import Answer
from slurm.cluster import NodeCondition
from slurm.states import node_condition
from supervisor.doctor import config as slurm_conf
from supervisor.doctor.verdict import Check
from supervisor.telling.say import count

_OPERATORS: Final = frozenset({"Operator", "Administrator"})
_NO_ACCOUNTS: Final = "accounting_storage/none"


class Ask(Protocol):
    """Run one command within a deadline. What can't be started ends with 127, what is late with None."""

    def __call__(self, *argv: str) -> Answer:
        """How it ended, and what it printed."""
        ...


@dataclass(frozen=True, slots=True)
class Who:
    """The user that asks."""

    uid: int
    name: str


@dataclass(frozen=True, slots=True)
class Seen:
    """The verdicts, and what later checks go by: `answers` is whether slurmctld does, `config` what it has."""

    checks: tuple[Check, ...]
    answers: bool
    config: Mapping[str, str]

    @property
    def munge_socket(self) -> str:
        """Where munged listens, if not in its usual place; "" else."""
        found = re.search(r"(?:^|,)socket=([^,]+)", self.config.get("AuthInfo", ""))
        return found[1] if found else ""

    @property
    def has_munge(self) -> bool:
        """Does this cluster know its users by munge?"""
        return self.config.get("AuthType") == "auth/munge"


def look(ask: Ask, who: Who, *, nodes: int, drain: bool, spares: int = 0) -> Seen:
    """All checks in order. `nodes`: how many the layout needs; `spares`: how many are wanted beside them; `drain`: does
    relight.toml want bars to reach Slurm?
    """
    ping = controller(ask("scontrol", "ping"))
    if ping.state != "ok":
        return Seen((ping,), answers=False, config={})
    answer = ask("scontrol", "show", "config")
    config = slurm_conf.parse(answer.out) if answer.ok else {}
    if not config:
        text = answer.why("scontrol show config") if not answer.ok else "`scontrol show config` tells nothing"
        checks: tuple[Check, ...] = (
            Check("slurm-config", "unknown", text, "run it by hand; then relight doctor again"),
        )
    else:
        checks = slurm_conf.judge(config)
    seen = Seen((), answers=True, config=config)
    checks = (ping, *checks, munge(ask, seen), rights(ask, who, config, drain=drain), room(ask, nodes, spares))
    return Seen(checks, answers=True, config=config)


def controller(answer: Answer) -> Check:
    """Does slurmctld answer?"""
    if "is UP" in answer.out:
        return Check("slurmctld", "ok", re.sub(r"\s+", " ", answer.out).strip()[:200])
    right = "wait for slurmctld, or ask the administrators; what depends on it was not looked at"
    if "is DOWN" in answer.out or answer.code == 1:
        return Check("slurmctld", "bad", "no controller of this cluster answers", right)
    return Check("slurmctld", "unknown", answer.why("scontrol ping"), right)


def munge(ask: Ask, seen: Seen) -> Check:
    """Can this machine make a credential that it takes itself? Without one no command of Slurm works."""
    if not seen.config:
        return Check("munge", "unknown", "how this cluster knows its users can't be read", "scontrol show config")
    if not seen.has_munge:
        return Check("munge", "ok", f"not used: AuthType is {seen.config.get('AuthType', 'not told')}")
    socket = ("-S", seen.munge_socket) if seen.munge_socket else ()
    answer = ask("munge", "-n", *socket)
    if answer.code == 127:
        return Check("munge", "unknown", answer.why("munge"), "the commands munge and unmunge on this machine")
    if not answer.ok:
        return Check("munge", "bad", answer.why("munge"), "munged running here: systemctl status munge")
    wrong = decoded(ask, answer.out, seen.munge_socket)
    if wrong:
        return Check("munge", "bad", wrong, "the same munge.key on all machines, and clocks within 300 s of each other")
    return Check("munge", "ok", "a credential of this machine is taken by this machine")


def decoded(ask: Ask, credential: str, socket: str) -> str:
    """Why munged here does not take a credential; "" when it does. Each can be taken once."""
    with tempfile.TemporaryDirectory(prefix="relight-doctor-") as folder:
        path = os.path.join(folder, "credential")
        with open(path, "x", encoding="utf-8") as file:
            file.write(credential)
        answer = ask("unmunge", *(("-S", socket) if socket else ()), "-i", path)
    status = re.search(r"^STATUS:\s+(.+)$", answer.out, re.MULTILINE)
    if answer.ok and status is not None and status[1].startswith("Success"):
        return ""
    return f"unmunge says: {status[1][:100]}" if status is not None else answer.why("unmunge")


def rights(ask: Ask, who: Who, config: Mapping[str, str], *, drain: bool) -> Check:
    """May this user drain nodes? Nothing is drained to find out."""
    if not drain:
        return Check("rights", "ok", "cluster.drain = false: bars stand for this run only")
    if not config:
        return Check("rights", "unknown", "slurm.conf can't be read", "scontrol show config")
    if who.uid == 0 or re.fullmatch(rf".*\({who.uid}\)", config.get("SlurmUser", "")):
        return Check("rights", "ok", f"{who.name} may drain nodes (root or SlurmUser)")
    right = (
        "nothing, if bars of this run alone do; else the administrators: "
        f"sacctmgr modify user {who.name} set adminlevel=operator"
    )
    if config.get("AccountingStorageType", "") in {_NO_ACCOUNTS, "(null)", ""}:
        text = f"{who.name} may not drain nodes: without accounting only root and SlurmUser may; bars stand for this run only"
        return Check("rights", "warn", text, "nothing, if bars of this run alone do")
    answer = ask("sacctmgr", "-n", "-P", "show", "user", f"name={who.name}", "format=User,AdminLevel")
    if not answer.ok:
        return Check("rights", "unknown", answer.why("sacctmgr"), f"sacctmgr show user {who.name}, by hand")
    levels = {level for name, _, level in (line.partition("|") for line in answer.out.splitlines()) if name == who.name}
    if levels & _OPERATORS:
        return Check("rights", "ok", f"{who.name} may drain nodes ({', '.join(sorted(levels))})")
    return Check("rights", "warn", f"{who.name} may not drain nodes; bars stand for this run only", right)


def room(ask: Ask, needed: int, spares: int = 0) -> Check:
    """Are there enough nodes that can work, for the spares too?"""
    answer = ask("sinfo", "--noheader", "--Node", "-O", parsing.NODE_FORMAT)
    if not answer.ok:
        return Check("cluster-nodes", "unknown", answer.why("sinfo"), "sinfo, by hand")
    try:
        rows = parsing.nodes(answer.out)
    except ValueError as error:
        return Check("cluster-nodes", "unknown", f"sinfo: {error}", "sinfo -N, by hand")
    fit = sum(node_condition(row.state) is NodeCondition.UP for row in rows.values())
    text = f"{count(len(rows), 'node')} listed, {fit:,} of them up; the layout needs {needed:,}"
    text += f", and {count(spares, 'spare')} beside them" if spares else ""
    if len(rows) < needed:
        right = "a smaller layout, or a partition that you may see (sinfo shows what you may use)"
        return Check("cluster-nodes", "bad", text, right)
    if len(rows) < needed + spares:
        return Check(
            "cluster-nodes", "warn", text, "fewer spares: Slurm takes no job that is larger than its partition"
        )
    if fit < needed + spares:
        return Check(
            "cluster-nodes", "warn", text, "the job waits until enough nodes are up: sinfo -R says why they are not"
        )
    return Check("cluster-nodes", "ok", text)
