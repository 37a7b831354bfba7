"""Megatron Core in an environment of its own, beside ours: it is only run there, never imported here, and nothing of it is kept.

torch, numpy and this code come from our own environment by a `.pth` file, so that nothing large is fetched twice.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from typing import Final

VERSION: Final = "0.19.2"
WANTED: Final = (f"megatron-core=={VERSION}", "einops", "psutil")
FETCH_S: Final = 180.0


class NoMegatronError(Exception):
    """It can't be had here. The text says why, in one line."""


def python_of(folder: str) -> str:
    """The interpreter of the environment in `folder`."""
    return os.path.join(folder, "bin", "python")


def make(folder: str, installer: tuple[str, ...] = (sys.executable, "-m", "pip")) -> str:
    """Make the environment, or take the one that is there; its interpreter. Raises NoMegatronError, OSError.

    `--ignore-requires-python`: its metadata asks for Python 3.12, while its core has a wheel for 3.11 and runs on it.
    """
    python, stamp = python_of(folder), os.path.join(folder, f".megatron-core-{VERSION}")
    if os.path.exists(stamp):
        return python
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", "--without-pip", folder], "no virtual environment can be made")
    site = sysconfig.get_path("purelib", vars={"base": folder, "platbase": folder})
    flags = ["--quiet", "--retries", "1", "--no-deps", "--ignore-requires-python", "--only-binary", ":all:"]
    _run([*installer, "--python", python, "install", *flags, *WANTED], f"{WANTED[0]} can't be installed")
    ours = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), _own_root()}
    with open(os.path.join(site, "relight.pth"), "w", encoding="utf-8") as file:
        file.write("\n".join(sorted(ours)) + "\n")
    _run([python, "-c", "import torch, numpy"], "torch is not here (pip install 'relight[train]')")
    with open(stamp, "x", encoding="ascii"):
        pass
    return python


def _own_root() -> str:
    """Where the package `supervisor` lies."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _run(command: list[str], otherwise: str) -> None:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=FETCH_S)
    except subprocess.TimeoutExpired:
        raise NoMegatronError(f"{otherwise}: not within {FETCH_S:.0f} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or f"exit {done.returncode}").splitlines()[-1]
        raise NoMegatronError(f"{otherwise}: {last[:300]}")
