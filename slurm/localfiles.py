"""The files of a local cluster: node.json (what a node shows) and the launch order (what it was asked to run).

Both are checked when they are read: a file that is not of this form raises ValueError and is never half believed.
Standard library only, for the node daemon reads and writes them too. The rows can be changed because the daemon
keeps its own state in them.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import Any

from slurm.cluster import LaunchSpec

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(slots=True)
class Task:
    """One task of a step on this node. `ended` is set once its leader was reaped, `gone` once nothing of it is left."""

    pid: int
    ended: bool = False
    gone: bool = False
    code: int | None = None
    signal: int | None = None


@dataclass(slots=True)
class Step:
    """One step on this node: its tasks by procid. `killed` means that it was asked to end; it never starts again."""

    epoch: int
    tasks: dict[int, Task] = field(default_factory=dict)
    killed: bool = False

    @property
    def running(self) -> bool:
        """Is anything of it left on this node?"""
        return any(not task.gone for task in self.tasks.values())


@dataclass(slots=True)
class NodeFile:
    """What node.json says. `beat` is monotonic seconds, `boot` the kernel's boot id, `released` a proper end."""

    name: str
    pid: int
    start_ticks: int
    beat: float = 0.0
    wall: float = 0.0
    epoch: int = 0
    boot: str = ""
    released: bool = False
    steps: dict[str, Step] = field(default_factory=dict)


def good_name(text: object) -> str:
    """The name of a node or step, proved fit for a file name. Raises ValueError."""
    if not isinstance(text, str) or not _NAME.fullmatch(text):
        raise ValueError(f"not a name: {text!r}")
    return text


def node_path(run_dir: str, node: str) -> str:
    """Where the node shows itself."""
    return f"{run_dir}/nodes/{node}/node.json"


def order_path(run_dir: str, step: str) -> str:
    """Where the launch order of a step lies; its name is the step's, so one step has one order."""
    return f"{run_dir}/nodes/orders/{step}.json"


def boot_id() -> str:
    """The id of this boot of the machine; empty where the kernel does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def write_whole(path: str, document: dict[str, Any], *, exclusive: bool = False) -> bool:
    """Write a JSON file so that a reader sees all of it or the one before; `exclusive`: False if there is one."""
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(document, file, separators=(",", ":"))
    if not exclusive:
        os.replace(temporary, path)
        return True
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
    return True


def write_node(run_dir: str, node: NodeFile) -> None:
    """Replace node.json. Raises OSError when the disk refuses."""
    steps = {
        name: {
            "epoch": step.epoch,
            "killed": step.killed,
            "tasks": {str(procid): _task_document(task) for procid, task in step.tasks.items()},
        }
        for name, step in node.steps.items()
    }
    document = {"schema": 1, "name": node.name, "pid": node.pid, "start_ticks": node.start_ticks, "beat": node.beat}
    document |= {"wall": node.wall, "epoch": node.epoch, "boot": node.boot, "released": node.released, "steps": steps}
    write_whole(node_path(run_dir, node.name), document)


def read_node(run_dir: str, name: str) -> NodeFile | None:
    """What the node shows, or None when it never was. Raises ValueError for a file that is not of this form."""
    path = node_path(run_dir, name)
    try:
        document = _load(path)
    except FileNotFoundError:
        return None
    try:
        _check_head(document, name)
        return NodeFile(
            name=name,
            pid=_whole(document["pid"], 1),
            start_ticks=_whole(document["start_ticks"]),
            beat=float(document["beat"]),
            wall=float(document["wall"]),
            epoch=_whole(document["epoch"]),
            boot=str(document["boot"]),
            released=document["released"] is True,
            steps={good_name(key): _step(step) for key, step in document["steps"].items()},
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path}: {error!r}") from error


def write_order(run_dir: str, spec: LaunchSpec) -> bool:
    """Write the launch order of a step; False when that step has one already, which then stands."""
    os.makedirs(f"{run_dir}/nodes/orders", exist_ok=True)
    document = {"schema": 1, "name": good_name(spec.name), "epoch": spec.epoch, "hosts": list(spec.hosts)}
    document |= {"argv": list(spec.argv), "env": dict(spec.env), "cwd": spec.cwd, "output": spec.output}
    return write_whole(order_path(run_dir, spec.name), document, exclusive=True)


def read_order(run_dir: str, step: str) -> LaunchSpec:
    """The launch order of a step. Raises OSError or ValueError."""
    path = order_path(run_dir, good_name(step))
    document = _load(path)
    try:
        _check_head(document, step)
        return LaunchSpec(
            name=step,
            epoch=_whole(document["epoch"]),
            hosts=tuple(good_name(host) for host in document["hosts"]),
            argv=tuple(_text(word) for word in document["argv"]),
            env={_text(key): _text(value) for key, value in document["env"].items()},
            cwd=_text(document["cwd"]),
            output=_text(document["output"]),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path}: {error!r}") from error


def _check_head(document: dict[str, Any], name: str) -> None:
    if document["schema"] != 1 or document["name"] != name:
        raise ValueError(f"schema {document['schema']!r}, name {document['name']!r}")


def _load(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        data = file.read()
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise ValueError(f"{path}: not a table")  # noqa: TRY004  the form of a file, not a type in our code
    return document


def _task_document(task: Task) -> dict[str, Any]:
    if not task.gone:
        return {"pid": task.pid, "state": "running"}
    return {"pid": task.pid, "state": "exited", "code": task.code, "signal": task.signal}


def _step(document: dict[str, Any]) -> Step:
    tasks = {}
    for procid, row in document["tasks"].items():
        if row["state"] not in {"running", "exited"}:
            raise ValueError(f"state {row['state']!r}")
        gone = row["state"] == "exited"
        code, number = (row[key] if gone else None for key in ("code", "signal"))
        tasks[int(procid)] = Task(
            _whole(row["pid"]),
            ended=gone,
            gone=gone,
            code=None if code is None else _whole(code),
            signal=None if number is None else _whole(number),
        )
    return Step(_whole(document["epoch"]), tasks, killed=document["killed"] is True)


def _whole(value: object, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"not a whole number of at least {least}: {value!r}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"not a text: {value!r}")
    return value
