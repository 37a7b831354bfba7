"""What the controller has to do with the reading of saves: who may, and how fast, told anew in each turn of the loop."""

from __future__ import annotations

from dataclasses import dataclass

from policies.facts import View
from policies.history import History
from policies.reading import may_read
from supervisor.checkpoints.readers_store import StoreReading
from supervisor.observe.reads import Reads


@dataclass(frozen=True, slots=True)
class Reading:
    """`crew`: the agents; `store`: how the store reads."""

    crew: Reads
    store: StoreReading

    def end(self) -> None:
        """The controller ends."""
        self.store.end()

    def follow(self, history: History, view: View, now: float) -> None:
        """Let those read who may now; the limit of speed holds while an attempt runs."""
        found = may_read(history, view, now)
        self.crew.allow(found.nodes)
        self.store.training(found.trains)
