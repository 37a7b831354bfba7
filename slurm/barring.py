"""Keeping a node from others: our own note always, a drain in Slurm where rights allow. Never over somebody else's."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
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
    """The bars of one run. `refused`: why the last node that was to be drained is not; None: it is, or none was to be."""

    def __init__(self, run_dir: str, commands: Commands, *, drain: bool, site: Sequence[str] = ()) -> None:
        """`drain`: ask Slurm too, not only our own note. `site`: the site's command in place of `scontrol update`; it gets the
        word drain or resume, the node, the key, and why, one word each.
        """
        self._run_dir = run_dir
        self._commands = commands
        self._drain = drain
        self._site = tuple(site)
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

    def bar(self, node: str, key: str, why: str = "") -> None:
        """The note, then the drain. Raises OSError while Slurm can't be asked; why a node is not drained is kept in `refused`.

        It is tried for each node: a right may be granted while a run lasts. `why` is for the site's own command.
        """
        if not 0 < len(key) <= _LONGEST_KEY or not key.isprintable():
            raise ValueError(f"not a key: {key[:250]!r}")
        os.makedirs(os.path.dirname(self._note(node)), mode=0o700, exist_ok=True)
        write_once(self._note(node), {"schema": 1, "key": key, "wall": time.time()})
        ours = self.note(node)
        if not self._drain or not ours:
            return
        try:
            self.refused = self._drained(node, ours, why)
        except OSError as error:
            self.refused = str(error)
            raise

    def unbar(self, node: str, key: str) -> None:
        """Lift what carries this key: first in Slurm, then our note. Raises OSError while Slurm can't be asked."""
        noted = self.note(node)
        if noted is not None and noted != key:
            return
        if self._drain:
            self._lift(node, key, noted=noted is not None)
        with suppress(FileNotFoundError):
            os.unlink(self._note(node))

    def _drained(self, node: str, key: str, why: str) -> str | None:
        """Have it drained, by Slurm or by the site's command; why it is not, None where it is. Raises OSError."""
        if node_words(self._row(node).state).flags & {"DRAIN", "FAIL"}:
            return None  # somebody has, be it ourselves: its reason stays
        if self._site:
            return self._call("drain", node, key, why)
        answer = self._commands.ask("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={key}")
        if answer.ok:
            return None
        if any(word in answer.err for word in _REFUSED):
            return answer.why("scontrol update")
        if "DRAIN" not in node_words(self._row(node).state).flags:
            raise OSError(answer.why("scontrol update"))
        return None

    def _lift(self, node: str, key: str, *, noted: bool) -> None:
        """Have a drain of ours lifted. A site may have drained elsewhere than Slurm shows. Raises OSError."""
        row = self._row(node)
        drained = "DRAIN" in node_words(row.state).flags
        if drained and row.reason != key:
            return
        if self._site:
            failed = self._call("resume", node, key, "") if noted else None
        elif drained:
            # UNDRAIN and not RESUME: whatever else is wrong with the node is not ours to call well.
            answer = self._commands.ask("scontrol", "update", f"NodeName={node}", "State=UNDRAIN")
            lifted = answer.ok or "DRAIN" not in node_words(self._row(node).state).flags
            failed = None if lifted else answer.why("scontrol update")
        else:
            failed = None
        if failed:
            raise OSError(failed)

    def _call(self, do: str, node: str, key: str, why: str) -> str | None:
        """Call the site's command; why it has failed, None where it has not. What it does is its own: nothing is read of it."""
        answer = self._commands.ask(*self._site, do, node, key, why)
        return None if answer.ok else answer.why(f"{os.path.basename(self._site[0])} {do} {node}")

    def _row(self, node: str) -> ListedNode:
        rows = self._commands.nodes((node,))
        if isinstance(rows, Unreadable):
            raise OSError(rows.why)
        if node not in rows:
            raise OSError(f"{node} is not known to Slurm")
        return rows[node]

    def _note(self, node: str) -> str:
        return f"{self._run_dir}/nodes/{localfiles.good_name(node)}/bar.json"
