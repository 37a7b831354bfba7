"""What `relight doctor` runs on each node of a job, and several times on its own machine: it tells what it sees, then obeys.

Run as a file with the variable RELIGHT_DOCTOR, a JSON object: `host`, `port`, `token` of who asks, `folder` (the scratch
folder beside the run), `munge` ("" or the words of the command), `report` and `deadline_s`. Standard library only, and
nothing of ours is imported: what is to be found out is what would be. It ends with its connection, or at its deadline.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from importlib.util import find_spec

TYPE_CHECKING = False  # mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

PACKAGES = ("supervisor", "slurm", "policies")
REPORT = "relight-doctor "
"""Before the report, in what a step prints: others may print beside it."""
LINE_MAX = 65_536
_CALL_S = 10.0


def main() -> int:
    """Report, connect, obey. 0: who asked has hung up; 1: it could not be reached."""
    task = json.loads(os.environ["RELIGHT_DOCTOR"])
    signal.alarm(max(1, int(task["deadline_s"])))  # whatever happens to who asked, nothing of this stays on a node
    told = report(task) if task["report"] else {}
    if told:  # also printed: who can't connect is heard through srun, later
        sys.stdout.write(f"{REPORT}{json.dumps(told)}\n")
        sys.stdout.flush()
    try:
        with socket.create_connection((task["host"], task["port"]), timeout=_CALL_S) as link:
            link.settimeout(None)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            serve(link, task, told)
    except OSError as error:
        if task["report"]:
            sys.stdout.write(f"{REPORT}{json.dumps({'node': node(), 'link': str(error)[:200]})}\n")
        return 1
    return 0


def node() -> str:
    """The node's name as Slurm has it; this host's name where Slurm is not."""
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def report(task: dict[str, Any]) -> dict[str, Any]:
    """What this node sees by itself."""
    home, digest = packages()
    seen, trouble = nonce(task["folder"])
    try:
        room = os.statvfs("/tmp")  # noqa: S108 - sockets of the agents lie there
        free = room.f_bavail * room.f_frsize
    except OSError:
        free = None
    made, refused = credential(task["munge"]) if task["munge"] else ("", "")
    return {
        "node": node(),
        "python": list(sys.version_info[:3]),
        "executable": sys.executable,
        "home": home,
        "digest": digest,
        "nonce": seen,
        "folder": trouble,
        "tmp_free": free,
        "credential": made,
        "munge": refused,
    }


def packages() -> tuple[dict[str, str | None], str]:
    """The folder that each of our packages would be imported from, and a digest over names and sizes of their files."""
    homes: dict[str, str | None] = {}
    total = hashlib.blake2b(digest_size=8)
    for name in PACKAGES:
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):
            spec = None
        folder = os.path.dirname(os.path.abspath(spec.origin)) if spec and spec.origin else None
        homes[name] = folder
        for path, size in sorted(_sources(folder)) if folder else ():
            total.update(f"{name}/{path} {size}\n".encode())
    return homes, total.hexdigest()


def _sources(folder: str) -> Iterator[tuple[str, int]]:
    for root, folders, files in os.walk(folder):
        folders[:] = [one for one in folders if one != "__pycache__"]
        for file in files:
            if file.endswith((".py", ".toml", ".sh")):
                path = os.path.join(root, file)
                yield os.path.relpath(path, folder), os.stat(path).st_size


def nonce(folder: str) -> tuple[str, str]:
    """What the file in the scratch folder says here, and what was wrong."""
    try:
        with open(os.path.join(folder, "nonce"), encoding="ascii") as file:
            return file.read(256), ""
    except (OSError, ValueError) as error:
        return "", str(error)[:200]


def credential(words: list[str]) -> tuple[str, str]:
    """A credential of munge without content, and what was wrong."""
    try:
        done = subprocess.run(words, capture_output=True, timeout=_CALL_S, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)[:200]
    if done.returncode:
        return "", done.stderr.decode("utf-8", "replace").strip()[-200:] or f"exit {done.returncode}"
    return done.stdout.decode("ascii", "replace").strip(), ""


def serve(link: socket.socket, task: dict[str, Any], told: dict[str, Any]) -> None:
    """One question a line, one answer a line, until the other side hangs up. Raises OSError."""
    with link.makefile("rwb", buffering=0) as lines:
        hello = {"node": node(), "token": task["token"], "pid": os.getpid()}
        lines.write(json.dumps(hello).encode() + b"\n")
        while line := lines.readline(LINE_MAX):
            asked = json.loads(line)
            said = told if asked["do"] == "report" else answer(task["folder"], asked)
            lines.write(json.dumps(said).encode() + b"\n")


def answer(folder: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Do one thing in the scratch folder. What the file system refuses is told as `error`."""
    path = os.path.join(folder, os.path.basename(asked.get("name", "")))
    try:
        if asked["do"] == "clock":
            return {"wall": time.time()}
        if asked["do"] == "create":
            return {"won": [turn for turn in range(asked["turns"]) if create(f"{path}-{turn}")]}
        if asked["do"] == "lock":
            return {"got": lock(path)}
        if asked["do"] == "read":
            return {"text": read(path)}
    except OSError as error:
        return {"error": f"{error.strerror or error}: {os.path.basename(path)}"}
    return {"error": f"no such thing: {asked['do']}"}


def create(path: str) -> bool:
    """Make a file that may not be there yet. False: another has made it. Raises OSError."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    return True


def lock(path: str) -> bool:
    """Try for an exclusive lock, and let it go. False: somebody else holds it. Raises OSError."""
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def read(path: str) -> str | None:
    """The text of a file; None where there is none. Raises OSError."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(256)
    except FileNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
