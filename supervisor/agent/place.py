"""Where a task stands in its attempt: read from launch.json, checked, and refused when it may not start.

The shim loads this beside itself and must start in some 20 ms, so it is standard library only and uses no dataclass
(importing `dataclasses` costs 10 ms). Rank r sits in slot r // ranks_per_node; ranks are ordered as in Megatron:
tp = r % TP, dp = (r // TP) % DP, pp = r // (TP x DP).
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False  # mypy knows the name; importing typing costs 5 ms
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class Refused(Exception):  # noqa: N818  a past event, said as one
    """This task may not start its rank; the message is the reason, as it stands in the exit record."""


class Place:
    """One rank's place: what the shim needs to start it. Made by `find`."""

    __slots__ = ("agent_sockets", "argv", "attempt", "cwd", "env", "node", "rank", "run_dir", "warm")

    def __init__(self, run_dir: str, attempt: int, rank: int, node: str, launch: Mapping[str, Any]) -> None:
        """Work out the command and the environment from a launch that `check` has passed."""
        self.run_dir = run_dir
        self.attempt = attempt
        self.rank = rank
        self.node = node
        self.warm: bool = launch["warm"]
        self.cwd: str = launch["cwd"]
        self.agent_sockets: str = launch["agent_sockets"]
        fill = {"{save_dir}": launch["save_dir"], "{load_dir}": launch["load_dir"]}
        if launch.get("launcher"):
            fill["{python}"] = sys.executable  # that of torchrun, which has started us
        self.argv = [filled(word, fill) for word in launch["command"]]
        self.env: dict[str, str] = launch["env"] | _variables(self, launch)


def identity(environment: Mapping[str, str], *, below_launcher: bool = False) -> tuple[int, str]:
    """Rank (of a launcher's task: slot) and node of this task: as Slurm says, else as the local cluster says. Raises Refused.

    `below_launcher`: torchrun has started this, and has set RANK.
    """
    procid = environment.get("SLURM_PROCID", environment.get("RELIGHT_PROCID", ""))
    if below_launcher:
        procid = environment.get("RANK", "")
    node = environment.get("SLURMD_NODENAME", environment.get("RELIGHT_NODE", ""))
    if not (procid.isascii() and procid.isdigit()):
        raise Refused("neither SLURM_PROCID nor RELIGHT_PROCID says which rank this is")
    if not node:
        raise Refused("neither SLURMD_NODENAME nor RELIGHT_NODE says which node this is")
    return int(procid), node


def find(run_dir: str, attempt: int, rank: int, node: str) -> Place:
    """The place of this rank in this attempt. Raises Refused when it may not start here and now.

    Refused are a fenced attempt, one that a higher attempt has followed, a node that is not the one of the slot, and
    a launch.json that cannot be believed. A newer epoch in the journal matters only when it has launched a higher
    attempt, which the second rule sees.
    """
    return placed(run_dir, attempt, rank, node, launched(run_dir, attempt))


def launched(run_dir: str, attempt: int) -> dict[str, Any]:
    """The map of an attempt that may start now. Raises Refused."""
    folder = attempt_dir(run_dir, attempt)
    if os.path.lexists(f"{folder}/FENCED"):
        raise Refused(f"attempt {attempt} is fenced")
    newer = _newest_launched(run_dir)
    if newer > attempt:
        raise Refused(f"attempt {newer} has been launched since")
    try:
        with open(f"{folder}/launch.json", "rb") as file:
            launch: dict[str, Any] = json.loads(file.read())
        check(launch, attempt)
    except (OSError, ValueError, RecursionError) as error:
        raise Refused(f"launch.json: {error}") from error
    return launch


def placed(run_dir: str, attempt: int, rank: int, node: str, launch: Mapping[str, Any]) -> Place:
    """The place of a rank in a map that was checked. Raises Refused where the map has it elsewhere."""
    slots: list[str] = launch["slots"]
    slot = rank // launch["ranks_per_node"]
    if slot >= len(slots):
        raise Refused(f"rank {rank} is not in a layout of {launch['tp']} x {launch['pp']} x {launch['dp']}")
    if slots[slot] != node:
        raise Refused(f"slot {slot} of attempt {attempt} is on {slots[slot]}, this is {node}")
    return Place(run_dir, attempt, rank, node, launch)


def attempt_dir(run_dir: str, attempt: int) -> str:
    """The folder of an attempt."""
    return f"{run_dir}/attempts/{attempt:04d}"


def check(launch: Any, attempt: int) -> None:
    """Prove that this is the map of this attempt. Raises ValueError that names the field."""
    if not isinstance(launch, dict):
        raise ValueError("not a table")  # noqa: TRY004  the form of a file, not a type in our code
    for key in ("schema", "epoch", "attempt", "tp", "pp", "dp", "ranks_per_node", "master_port"):
        if type(launch.get(key)) is not int or launch[key] < 1:
            raise ValueError(f"{key}: {launch.get(key)!r} is not a positive whole number")
    for key in ("run", "master_addr", "cwd", "save_dir", "load_dir", "agent_sockets"):
        if not _is_text(launch.get(key)):
            raise ValueError(f"{key}: {launch.get(key)!r} is not a text")
    for key in ("slots", "command"):
        if not (isinstance(launch.get(key), list) and launch[key] and all(map(_is_text, launch[key]))):
            raise ValueError(f"{key}: not a list of texts")
    launcher = launch.get("launcher", [])
    if not (isinstance(launcher, list) and all(map(_is_text, launcher))):
        raise ValueError("launcher: not a list of texts")
    env = launch.get("env")
    if not (isinstance(env, dict) and all(map(_is_text, env)) and all(map(_is_text, env.values()))):
        raise ValueError("env: not a table of texts")
    if not isinstance(launch.get("warm"), bool) or type(launch.get("reporter")) is not int:
        raise ValueError("warm or reporter: missing or of the wrong kind")
    if launch.get("checkpoint") is not None and not _is_text(launch["checkpoint"]):
        raise ValueError("checkpoint: neither a text nor null")
    spans = launch.get("skip_samples", [])
    if not (isinstance(spans, list) and all(map(_is_span, spans))):
        raise ValueError("skip_samples: not a list of [first, end]")
    if launch["schema"] != 1 or launch["attempt"] != attempt:
        raise ValueError(f"schema {launch['schema']}, attempt {launch['attempt']}: not the map of attempt {attempt}")
    world = launch["tp"] * launch["pp"] * launch["dp"]
    if world != len(launch["slots"]) * launch["ranks_per_node"]:
        raise ValueError(f"{world} ranks do not fill {len(launch['slots'])} slots of {launch['ranks_per_node']}")


def _variables(place: Place, launch: Mapping[str, Any]) -> dict[str, str]:
    """What the command inherits about its place (contracts, section 2)."""
    tp, pp, dp, per_node = (launch[key] for key in ("tp", "pp", "dp", "ranks_per_node"))
    rank = place.rank
    slot = rank // per_node
    values = {
        "RANK": rank,
        "WORLD_SIZE": tp * pp * dp,
        "LOCAL_RANK": rank % per_node,
        "LOCAL_WORLD_SIZE": per_node,
        "NODE_RANK": slot,
        "GROUP_RANK": slot,
        "MASTER_ADDR": launch["master_addr"],
        "MASTER_PORT": launch["master_port"],
        "RELIGHT_RUN": launch["run"],
        "RELIGHT_RUN_DIR": place.run_dir,
        "RELIGHT_EPOCH": launch["epoch"],
        "RELIGHT_ATTEMPT": place.attempt,
        "RELIGHT_SLOT": slot,
        "RELIGHT_NODE": place.node,
        "RELIGHT_TP": rank % tp,
        "RELIGHT_PP": rank // (tp * dp),
        "RELIGHT_DP": rank // tp % dp,
        "RELIGHT_SAVE_DIR": launch["save_dir"],
        "RELIGHT_LOAD_DIR": launch["load_dir"],
        "RELIGHT_CHECKPOINT": launch.get("checkpoint") or "",
        "RELIGHT_SKIP_SAMPLES": ",".join(f"{first}:{end}" for first, end in launch.get("skip_samples", [])),
        "RELIGHT_AGENT_SOCKET": f"{launch['agent_sockets']}/agent-{place.node}.sock",
        "RELIGHT_REPORTER": int(rank == launch["reporter"]),
    }
    return {key: str(value) for key, value in values.items()}


def _newest_launched(run_dir: str) -> int:
    names = [name for name in os.listdir(f"{run_dir}/attempts") if name.isascii() and name.isdigit()]
    return max((int(n) for n in names if os.path.lexists(f"{run_dir}/attempts/{n}/launch.json")), default=0)


def filled(word: str, fill: Mapping[str, str]) -> str:
    """A word of a command with its marks filled in."""
    for mark, value in fill.items():
        word = word.replace(mark, value)
    return word


def _is_span(value: object) -> bool:
    if not isinstance(value, list) or [type(number) for number in value] != [int, int]:
        return False
    return bool(0 <= value[0] < value[1])


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value
