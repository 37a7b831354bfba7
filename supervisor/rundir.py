"""The run directory: where everything of a run lies (docs/contracts.md, section 1)."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass

from supervisor.durable import create_whole, replace_whole
from supervisor.errors import UserError


@dataclass(frozen=True, slots=True)
class RunDir:
    """Paths of one run. `root` is absolute."""

    root: str

    @classmethod
    def of(cls, run: str) -> RunDir:
        """RUN in a command: a path, or the name of a run below ./relight-runs."""
        named = os.path.join("relight-runs", run)
        path = run if os.sep in run or os.path.isdir(run) or not os.path.isdir(named) else named
        return cls(os.path.abspath(path))

    def path(self, *parts: str) -> str:
        """A path below the run directory."""
        return os.path.join(self.root, *parts)

    @property
    def journal(self) -> str:
        """The folder of the journal's segments."""
        return self.path("journal")

    def attempt(self, number: int, *parts: str) -> str:
        """A path below one attempt's folder."""
        return self.path("attempts", f"{number:04d}", *parts)

    def incident(self, number: int, *parts: str) -> str:
        """A path below one incident's folder."""
        return self.path("incidents", f"{number:04d}", *parts)

    def create(self) -> None:
        """Make the folders, 0700. Raises UserError."""
        try:
            os.makedirs(self.root, mode=0o700, exist_ok=True)
            for name in ("journal", "requests", "requests/answers", "steps", "nodes", "attempts", "incidents"):
                os.makedirs(self.path(*name.split("/")), mode=0o700, exist_ok=True)
        except OSError as error:
            raise UserError(f"{self.root}: the run directory can't be made: {error.strerror}") from None

    def must_exist(self) -> RunDir:
        """Itself, when a run is there. Raises UserError."""
        if not os.path.isdir(self.journal):
            hint = "Give a run's name or its directory; one whose job still waits has not begun"
            raise UserError(f"{self.root}: no run of relight is here. {hint}")
        return self

    def token(self) -> str:
        """The run token; made at the first call, 0600."""
        create_whole(self.path("token"), secrets.token_hex(16).encode(), 0o600)
        with open(self.path("token"), encoding="ascii") as file:
            return file.read(256).strip()

    def write_endpoint(self, host: str, port: int, epoch: int) -> None:
        """Tell the agents where the controller listens."""
        data = {"schema": 1, "host": host, "port": port, "epoch": epoch}
        replace_whole(self.path("endpoint.json"), json.dumps(data).encode())
