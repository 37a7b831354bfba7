"""What a warm process is asked for, when it says no, and how a fork of it becomes the rank.

A forked rank is to be what `python SCRIPT` would have been, as far as the script can tell: argv, environment, working
directory, sys.path, standard streams, exit code. What an interpreter or torch reads when it starts cannot be changed
any more, so a request that differs there is refused.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import shutil
import signal
import sys
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NoReturn

_READ_AT_IMPORT: Final = (
    *("ATEN_", "CUBLAS_", "CUDA_", "CUDNN_", "DNNL_", "GOMP_", "KMP_", "LD_", "MKL_", "NCCL_", "NUMPY_", "NVIDIA_"),
    *("OMP_", "ONEDNN_", "OPENBLAS_", "PYTHON", "PYTORCH_", "TORCH_"),
)
"""Prefixes of variables that the loader, the interpreter, torch or its libraries read once, when they start."""

_HARMLESS: Final = frozenset({"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"})  # the first is done by hand in a fork


@dataclass(frozen=True, slots=True)
class Request:
    """One rank that is wanted: the command, its whole environment, its directory and its log."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    log: str


def read_request(line: bytes) -> Request:
    """Check a request. Raises ValueError."""
    document = json.loads(line)
    if not isinstance(document, dict):
        raise ValueError("not a table")  # noqa: TRY004  the form of a message, not a type in our code
    argv, env = document.get("argv"), document.get("env")
    if not (isinstance(argv, list) and argv and all(isinstance(word, str) for word in argv)):
        raise ValueError("argv is not a list of texts")
    if not (isinstance(env, dict) and all(isinstance(value, str) for value in env.values())):
        raise ValueError("env is not a table of texts")
    cwd, log = document.get("cwd"), document.get("log")
    if not (isinstance(cwd, str) and isinstance(log, str)):
        raise ValueError("cwd or log is not a text")  # noqa: TRY004  as above
    return Request(tuple(argv), env, cwd, log)


def refusal(request: Request, own: Mapping[str, str], executable: str) -> str:
    """Why a fork of a process with the environment `own` cannot be this rank; empty when it can."""
    program = shutil.which(request.argv[0], path=request.env.get("PATH", os.defpath))
    if program is None or not _same_program(program, executable):
        return f"{request.argv[0]} is {program}, the warm process runs {executable}"
    words = _without_u(request.argv)
    if not words or words == ["-m"] or (words[0].startswith("-") and words[0] != "-m"):
        return "only `python [-u] SCRIPT ...` and `python [-u] -m MODULE ...` can be forked"
    names = {name for name in (*own, *request.env) if name.startswith(_READ_AT_IMPORT)} - _HARMLESS
    for name in sorted(names):
        if own.get(name) != request.env.get(name):
            return f"{name} is {request.env.get(name)!r} there and {own.get(name)!r} in the warm process"
    return ""


def join_group(pid: int, group: int) -> None:
    """Put a rank into the process group of its shim; into one of its own when that group is in another session."""
    try:
        os.setpgid(pid, group)
    except PermissionError:
        with suppress(OSError):
            os.setpgid(pid, 0)
    except OSError:
        return  # it has ended


def become(request: Request, group: int, cpus: Collection[int] = ()) -> NoReturn:
    """In the forked child: be the rank, on these cores (none: those of the server), and never return to the server's code.

    The server's descriptors are the caller's to close; standard error stays until the log takes its place.
    """
    try:
        join_group(0, group)
        if cpus:
            with suppress(OSError):  # cores that the server itself may not use: then it stays where it is
                os.sched_setaffinity(0, cpus)
        _let_go()
        _put_on(request)
        code = _run(_without_u(request.argv))
    except BaseException:  # noqa: BLE001  a forked child must never go on as the server
        with suppress(BaseException):
            sys.excepthook(*sys.exc_info())
        code = 1
    with suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _let_go() -> None:
    """Take the server's signal handling back to what a fresh interpreter has."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _put_on(request: Request) -> None:
    log = os.open(request.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if log > 2:
        os.close(log)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=True)  # type: ignore[union-attr]
    os.environ.clear()
    os.environ.update(request.env)
    os.chdir(request.cwd)
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()  # a fresh interpreter would have drawn its own seed; forks must not share one


def _run(words: list[str]) -> int:
    """Run the script or module as `__main__`; answers the code that python would end with."""
    if not sys.flags.safe_path:
        sys.path.pop(0)  # the folder that the server itself was started in
    try:
        if words[0] == "-m":
            sys.argv = words[1:]
            sys.path.insert(0, os.getcwd())
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            sys.path.insert(0, os.path.dirname(os.path.realpath(words[0])))
            runpy.run_path(words[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = _exit_code(end.code)
    # What an interpreter does at its end, but for taking itself apart, which takes 2.3 s after a collective.
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001  joins the threads that are not daemons
    atexit._run_exitfuncs()  # noqa: SLF001
    return code


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _same_program(one: str, other: str) -> bool:
    """The same interpreter of the same environment: virtual environments share the file, not the folder."""
    folders = {os.path.realpath(os.path.dirname(path)) for path in (one, other)}
    return len(folders) == 1 and os.path.realpath(one) == os.path.realpath(other)


def _without_u(argv: tuple[str, ...]) -> list[str]:
    """The words after `python`, and after -u, which a fork does anyway."""
    return list(argv[2:] if argv[1:2] == ("-u",) else argv[1:])
