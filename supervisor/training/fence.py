"""What the run directory tells a rank: whether its attempt may still publish, and whether it is asked to stop."""

from __future__ import annotations

import os


def is_fenced(run_dir: str, attempt: int) -> bool:
    """Is this attempt fenced, or is there a newer one? True also when that can't be read: unknown may not publish."""
    attempts = os.path.join(run_dir, "attempts")
    try:
        os.stat(os.path.join(attempts, f"{attempt:04d}", "FENCED"))
    except FileNotFoundError:
        pass
    except OSError:
        return True
    else:
        return True
    try:
        names = os.listdir(attempts)
    except OSError:
        return True
    newer = [name for name in names if name.isascii() and name.isdigit() and int(name) > attempt]
    return any(os.path.exists(os.path.join(attempts, name, "launch.json")) for name in newer)


def is_stop_asked(run_dir: str, attempt: int) -> bool:
    """Has a planned stop been asked for? False when that can't be read: the question is put again next step."""
    return os.path.exists(os.path.join(run_dir, "attempts", f"{attempt:04d}", "STOP"))
