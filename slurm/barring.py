"""Keeping a node from others: our own note always, a drain in Slurm where rights allow. Never over somebody else's."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress

from slurm import localfiles
from slurm.asking import Commands
from slurm.cluster import Unreadable
from slurm.once import write_once
from slurm.parsing import ListedNode
from slurm.states import node_words

_REFUSED = ("Invalid user id", "Access/permission denied", "Access denied")
_LONGEST_KEY = 200  # of a reason; slurmctld cuts nothing that short


class Bars:
    """The bars of one run. `refused` says why Slurm would not drain for this user, once it has said so."""

    def __init__(self, run_dir: str, commands: Commands, *, drain: bool) -> None:
        """`drain`: ask Slurm too, not only our own note."""
        self._run_dir = run_dir
        self._commands = commands
        self._drain = drain
        self.refused: str | None = None

    def note(self, node: str) -> str | None:
        """The key of our own bar, if there is one. A note that can't be read is one all the same, with the key ""."""
        try:
            with open(self._note(node), "rb") as file:
                document = json.loads(file.read(65536))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError):
            return ""
        return str(document.get("key", "")) if isinstance(document, dict) else ""

    def is_ours(self, row: ListedNode) -> bool:
        """Is its drain the one that we have set? The reason alone proves nothing: 24.11 keeps it on a node that is well."""
        key = self.note(row.name)
        return bool(key) and row.reason == key and "DRAIN" in node_words(row.state).flags

    def bar(self, node: str, key: str) -> None:
        """The note, then the drain. Raises OSError while Slurm can't be asked; a refusal is kept in `refused`."""
        if not 0 < len(key) <= _LONGEST_KEY or not key.isprintable():
            raise ValueError(f"not a key: {key[:250]!r}")
        os.makedirs(os.path.dirname(self._note(node)), mode=0o700, exist_ok=True)
        write_once(self._note(node), {"schema": 1, "key": key, "wall": time.time()})
        ours = self.note(node)
        if not self._drain or self.refused is not None or not ours:
            return
        if node_words(self._row(node).state).flags & {"DRAIN", "FAIL"}:
            return  # somebody has, be it ourselves: its reason stays
        answer = self._commands.ask("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={ours}")
        if answer.ok:
            return
        why = answer.why("scontrol update")
        if any(word in answer.err for word in _REFUSED):
            self.refused = why
        elif "DRAIN" not in node_words(self._row(node).state).flags:
            raise OSError(why)

    def unbar(self, node: str, key: str) -> None:
        """Lift what carries this key: first in Slurm, then our note. Raises OSError while Slurm can't be asked."""
        noted = self.note(node)
        if noted is not None and noted != key:
            return
        if self._drain and self.refused is None:
            row = self._row(node)
            if row.reason == key and "DRAIN" in node_words(row.state).flags:
                # UNDRAIN and not RESUME: whatever else is wrong with the node is not ours to call well.
                answer = self._commands.ask("scontrol", "update", f"NodeName={node}", "State=UNDRAIN")
                if not answer.ok and "DRAIN" in node_words(self._row(node).state).flags:
                    raise OSError(answer.why("scontrol update"))
        with suppress(FileNotFoundError):
            os.unlink(self._note(node))

    def _row(self, node: str) -> ListedNode:
        rows = self._commands.nodes((node,))
        if isinstance(rows, Unreadable):
            raise OSError(rows.why)
        if node not in rows:
            raise OSError(f"{node} is not known to Slurm")
        return rows[node]

    def _note(self, node: str) -> str:
        return f"{self._run_dir}/nodes/{localfiles.good_name(node)}/bar.json"
