"""What a Slurm on this machine needs, and getting it where that is allowed: root on Debian, from Debian's own packages."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from typing import Final

BUILT: Final = os.environ.get("RELIGHT_SLURM_BIN", "")
"""The prefix of a Slurm that was built here (`./configure --prefix=DIR`), to be used in place of Debian's."""

PATH: Final = (f"{BUILT}/sbin:{BUILT}/bin:" if BUILT else "") + (
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)
"""Where the daemons and commands of the test cluster are."""

PACKAGES: Final = ("slurmctld", "slurmd", "slurm-client", "munge")
PROGRAMS: Final = ("slurmctld", "slurmd", "srun", "squeue", "munged", "setpriv", "unshare", "nsenter")
_DEADLINE_S: Final = 600.0


def missing() -> list[str]:
    """Programs that are not there."""
    return [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]


def ensure() -> str | None:
    """Install what is missing. None when all is there, else the reason why there will be no Slurm here."""
    if os.geteuid() != 0:
        return "a test cluster of Slurm needs root (its daemons change users and namespaces)"
    with open(f"{tempfile.gettempdir()}/relight-slurm-install.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test processes must not both call apt
        if missing():
            why = _install()
            if why is not None:
                return why
    left = missing()
    return f"not installed: {', '.join(left)}" if left else None


def _install() -> str | None:
    if shutil.which("apt-get", path=_path()) is None:
        return f"not installed: {', '.join(missing())}; no apt-get here to install {' '.join(PACKAGES)} with"
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "PATH": _path()}
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *PACKAGES]
    said = ""
    for command in (install, ["apt-get", "update", "-q"], install):
        try:
            done = subprocess.run(
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_DEADLINE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{' '.join(command[:2])} took more than {_DEADLINE_S:.0f} s"
        said = done.stderr.strip()
        if done.returncode == 0 and command is install:
            return None
    return f"apt-get install {' '.join(PACKAGES)}: {said[-300:]}"


def _path() -> str:
    """The daemons lie in sbin, which is not on everybody's path."""
    return f"{PATH}:{os.environ.get('PATH', '')}"
