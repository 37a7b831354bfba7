"""What is installed, found without importing it. Standard library only: it must work where the rest does not."""

from __future__ import annotations

import os
from importlib import metadata
from importlib.util import find_spec
from typing import Final

from supervisor.doctor.machine import Installation, Package

OURS: Final = ("supervisor", "slurm", "policies")


def look_at_installation() -> Installation:
    """Where our packages would be imported from, and which distributions claim their names."""
    owners = metadata.packages_distributions()
    return Installation(
        home=os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
        version=version_of("relight"),
        packages=tuple(Package(name, _folder_of(name), tuple(sorted(set(owners.get(name, ()))))) for name in OURS),
    )


def version_of(distribution: str) -> str | None:
    """The version of an installed distribution; None when it is not there."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _folder_of(name: str) -> str | None:
    """The folder that `import NAME` would take, found as the import would find it."""
    spec = find_spec(name)
    return os.path.dirname(os.path.abspath(spec.origin)) if spec and spec.origin else None
