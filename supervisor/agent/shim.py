"""The parent of one rank: checks that it may start, starts it, and writes down how it ended.

Run as a file, `python -I -S .../shim.py RUN_DIR ATTEMPT`, once for each of thousands of ranks (below torchrun as
`shim.py RUN_DIR ATTEMPT below-launcher`): standard library only, and nothing of ours but `place` beside it. It ends as
its rank ended: with the same code, 128 + the signal, or 94 when it refused to start. The rank dies when the shim dies.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

TYPE_CHECKING = False  # mypy knows the name; importing typing costs 5 ms
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType
    from typing import Any, NoReturn

    from supervisor.agent import place
else:
    # Isolated mode leaves our folder out. It goes last, so that nothing in it can hide the standard library.
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    import place

    sys.path.pop()

REFUSED = 94
BELOW_LAUNCHER = "below-launcher"
"""The last argument where torchrun has started the shim and says in RANK which rank it is."""

_NOT_FOUND = 127  # as a shell says that a command could not be started
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_WARM_ANSWER_S = 5.0  # a warm fork answers in a few ms; after this the rank is better started cold

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""What a warm process has set. A rank that was to be warm and is started cold must compute the same bits."""

_MEETING = ("MASTER_ADDR", "MASTER_PORT")

PASSED_ON = (signal.SIGTERM, signal.SIGINT)
_SURVIVED = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Who signals a step with these (scancel --signal) reaches the ranks itself; only the shim must not die of them."""


class ColdRank:
    """A rank, or the launcher of several, that is a child of ours, started by exec."""

    warm = False

    def __init__(self, argv: list[str], cwd: str, env: Mapping[str, str], log: str | None = None) -> None:
        """Fork and exec; without `log` it prints where we do. A command that cannot be started says so there, and ends with 127."""
        import ctypes  # noqa: PLC0415  3 ms that a warm rank need not wait for

        self._libc = ctypes.CDLL(None, use_errno=True)  # before the fork: the child should only exec
        shim = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self._become(argv, cwd, env, log, shim)

    def _become(self, argv: list[str], cwd: str, env: Mapping[str, str], log: str | None, shim: int) -> NoReturn:
        try:
            self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != shim:  # it died before we had asked to be told
                os._exit(_NOT_FOUND)
            for number in (*PASSED_ON, *_SURVIVED, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
            if log is not None:
                file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                os.dup2(file, 1)
                os.dup2(file, 2)
            os.chdir(cwd)
            os.execvpe(argv[0], argv, env)  # noqa: S606  a list, no shell
        except BaseException as error:  # noqa: BLE001  a forked child must never go on as the shim
            os.write(2, f"relight: {argv[0]} not started: {error}\n".encode())
            os._exit(_NOT_FOUND)

    def signal(self, number: int) -> None:
        """Pass a signal on. The child is not reaped before `wait` returns, so the pid is still its own."""
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Exit code, or minus the signal."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class WarmRank:
    """A rank that the node's warm process forked for us. It lives as long as our connection does."""

    warm = True

    def __init__(self, where: place.Place, env: Mapping[str, str]) -> None:
        """Ask for the fork. Raises OSError or ValueError with the reason when there will be none."""
        import socket  # noqa: PLC0415  3 ms that a cold rank need not wait for: its agent is told when it runs

        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_WARM_ANSWER_S)
        self._buffer = b""
        try:
            self._socket.connect(f"{where.agent_sockets}/warm-{where.node}.sock")
            self.pid = self._ask({"argv": where.argv, "env": dict(env), "cwd": where.cwd, "log": log_path(where)})
        except BaseException:
            self._socket.close()  # whatever was being made for us is ended by this
            raise
        self._socket.settimeout(None)

    def _ask(self, request: dict[str, Any]) -> int:
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        answer = self._read() or {}
        pid = answer.get("pid")
        if type(pid) is not int:
            raise ValueError(str(answer.get("refused", "no answer")))
        return pid

    def signal(self, number: int) -> None:
        """The warm process passes the signal on: it is the one that reaps the rank."""
        self._socket.sendall(json.dumps({"signal": number}).encode() + b"\n")

    def wait(self) -> int:
        """Exit code, or minus the signal. The rank dies with the warm process, so its end is SIGKILL too."""
        try:
            answer = self._read() or {}
        except (OSError, ValueError):
            answer = {}
        code, number = answer.get("code"), answer.get("signal")
        if type(code) is int:
            return code
        return -(number if type(number) is int else signal.SIGKILL)

    def _read(self) -> dict[str, Any] | None:
        while b"\n" not in self._buffer:
            data = self._socket.recv(4096)
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")  # from our own warm process, in a directory of ours alone
        answer = json.loads(line)
        if not isinstance(answer, dict):
            raise ValueError("not a table")  # noqa: TRY004  the form of a message, not a type in our code
        return answer


def log_path(where: place.Place) -> str:
    """Where the rank's stdout and stderr go."""
    return f"{place.attempt_dir(where.run_dir, where.attempt)}/logs/rank_{where.rank:05d}.log"


def write_whole(path: str, document: Mapping[str, Any], *, replace: bool) -> None:
    """Write a JSON file that a reader sees whole or not at all; without `replace` one that is there stays.

    A disk that refuses is said on stderr and is no reason to end a rank.
    """
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(document, file, separators=(",", ":"))
        if replace:
            os.replace(temporary, path)
            return
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass
        finally:
            os.unlink(temporary)
    except OSError as error:
        print(f"relight: {path}: {error}", file=sys.stderr)


def tell_agent(where: place.Place, kind: str, fields: Mapping[str, Any]) -> None:
    """Send one datagram to the agent of the node, if there is one that takes it; never wait."""
    import socket  # noqa: PLC0415  see WarmRank

    message = {"k": kind, "r": where.rank, "a": where.attempt, "t": time.time(), "m": time.monotonic(), **fields}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        try:
            sender.sendto(json.dumps(message).encode(), where.env["RELIGHT_AGENT_SOCKET"])
        except OSError:
            return


def record(rank: int, node: str, attempt: int, **how: Any) -> dict[str, Any]:
    """An exit record (contracts, section 3)."""
    fields = {"schema": 1, "rank": rank, "node": node, "attempt": attempt, "pid": None, "code": None, "signal": None}
    return fields | {"wall": time.time(), "monotonic": time.monotonic(), "refused": None} | how


def start(where: place.Place, env: Mapping[str, str]) -> tuple[ColdRank | WarmRank, str | None]:
    """Start the rank, warm where that is asked for and possible; the note says why it is cold all the same."""
    if not where.warm:
        return ColdRank(where.argv, where.cwd, env, log_path(where)), None
    try:
        return WarmRank(where, env), None
    except (OSError, ValueError) as error:
        return ColdRank(where.argv, where.cwd, env, log_path(where)), f"not warm: {error}"


def pass_on_to(child: ColdRank | WarmRank) -> None:
    """From now on it gets what asks us to end, and what came while that was blocked."""

    def pass_on(number: int, _: FrameType | None) -> None:
        try:
            child.signal(number)
        except OSError:
            return  # it has ended meanwhile

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)


def run(where: place.Place) -> int:
    """Start the rank, stand by until it ends, and tell the agent and the disk. Answers the shim's own exit code."""
    folder = place.attempt_dir(where.run_dir, where.attempt)
    os.makedirs(os.path.dirname(log_path(where)), exist_ok=True)
    # Lines must be in the log when they are written: a rank that is killed never empties its buffer.
    env = {"PYTHONUNBUFFERED": "1", **(_ONE_THREAD if where.warm else {}), **os.environ, **where.env}
    # A signal that comes before there is a rank waits until it can be passed on.
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    for number in _SURVIVED:
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which a warm or cold rank would inherit
    try:
        rank, note = start(where, env)
    except OSError as error:
        raise place.Refused(f"no process can be made: {error}") from error
    pass_on_to(rank)
    pids = {"schema": 1, "pid": rank.pid, "shim_pid": os.getpid(), "node": where.node}
    write_whole(f"{folder}/pids/rank_{where.rank:05d}.json", pids, replace=True)
    told = {"pid": rank.pid, "warm": rank.warm}
    tell_agent(where, "start", told if note is None else told | {"note": note})
    ended = rank.wait()
    how = {"pid": rank.pid, "code": ended} if ended >= 0 else {"pid": rank.pid, "signal": -ended}
    end = record(where.rank, where.node, where.attempt, **how)
    write_whole(f"{folder}/exit/rank_{where.rank:05d}.json", end, replace=True)
    tell_agent(where, "exit", end)
    return ended if ended >= 0 else 128 - ended


def refuse(run_dir: str, attempt: int, rank: int, node: str, why: str) -> None:
    """Leave the record of a refusal. It never takes the place of how a rank has really ended."""
    end = record(rank, node, attempt, code=REFUSED, refused=why)
    write_whole(f"{place.attempt_dir(run_dir, attempt)}/exit/rank_{rank:05d}.json", end, replace=False)


def main(arguments: list[str]) -> int:
    """`RUN_DIR ATTEMPT [below-launcher]`; answers the exit code."""
    run_dir, attempt = os.path.abspath(arguments[0]), int(arguments[1])
    rank = None
    try:
        rank, node = place.identity(os.environ, below_launcher=arguments[2:] == [BELOW_LAUNCHER])
        where = place.find(run_dir, attempt, rank, node)
        if arguments[2:] == [BELOW_LAUNCHER]:  # where the ranks meet is the launcher's to say
            where.env.update({name: os.environ[name] for name in _MEETING if name in os.environ})
        return run(where)
    except place.Refused as error:
        print(f"relight: not started: {error}", file=sys.stderr)
        if rank is not None:
            refuse(run_dir, attempt, rank, node, str(error))
        return REFUSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
