"""What relight can do without: pyslurm and NVRx, asked in children, because importing them can end a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Final

from supervisor.doctor.machine import NvrxSeen, PyslurmSeen
from supervisor.observe.installed import version_of

NVRX: Final = "nvidia-resiliency-ext"
TRIAL_S: Final = 20.0
"""So long may one child take; importing pyslurm takes 0.06 s, and 10 s where slurmctld hangs (its MessageTimeout)."""
_MARK: Final = "relight-doctor:"
_IMPORTED: Final = f"import pyslurm; print('{_MARK}imported')"
_VERSION: Final = f"from importlib.metadata import version; print('{_MARK}' + version('{NVRX}'))"


def look_at_pyslurm(version: str | None, python: str = sys.executable, deadline_s: float = TRIAL_S) -> PyslurmSeen:
    """Import it where nothing is lost: without a slurm.conf, or beside another libslurm, the process that tries ends."""
    return PyslurmSeen(version, None if version is None else _ask(python, _IMPORTED, deadline_s)[1])


def look_at_nvrx(named: str, folder: str, deadline_s: float = TRIAL_S) -> NvrxSeen:
    """Its version, of our own Python or of the one that the settings name (`folder`: where relight.toml lies)."""
    if not named:
        return NvrxSeen(version_of(NVRX))
    python = os.path.join(folder, named)
    version, trouble = _ask(python, _VERSION, deadline_s)
    return NvrxSeen(version or None, python, trouble)


def _ask(python: str, code: str, deadline_s: float) -> tuple[str, str]:
    """What a child printed behind our mark, and what went wrong, or "". Others may print beside it."""
    try:
        done = subprocess.run(
            [python, "-c", code], capture_output=True, timeout=deadline_s, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return "", f"no answer after {deadline_s:.0f} s"
    except OSError as error:
        return "", error.strerror or str(error)
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    found = [line.removeprefix(_MARK)[:64] for line in lines if line.startswith(_MARK)]
    if found and done.returncode == 0:
        return found[-1], ""
    said = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    return "", f"{said[-1][:200] if said else 'no word'} ({_ended(done.returncode)})"


def _ended(code: int) -> str:
    return f"exit {code}" if code >= 0 else signal.Signals(-code).name
