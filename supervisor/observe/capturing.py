"""How far one capture of evidence is: whom it waits for, what was kept, when it gives up. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from policies.facts import CaptureView, RankStack


class Capturing:
    """One capture of `world` ranks, asked of `nodes`; at `until` (controller's clock) it is done whatever is missing."""

    def __init__(self, incident: int, attempt: int, world: int, nodes: Iterable[str], until: float) -> None:
        self.incident = incident
        self.attempt = attempt
        self._world = world
        self.until = until
        self._waiting = set(nodes)
        self._kept: dict[int, bool] = {}
        self._stacks: dict[int, RankStack] = {}
        self._callback: Callable[[int], None] | None = None

    @property
    def world(self) -> int:
        """How many ranks there are."""
        return self._world

    def answered(self, node: str, ranks: Mapping[int, bool], now: float, stacks: Iterable[RankStack] = ()) -> None:
        """A node has answered (which ranks' stacks are kept, and what they say), or will not any more (then with none)."""
        self._waiting.discard(node)
        self._stacks.update((one.rank, one) for one in stacks)
        self._kept.update((rank, ok) for rank, ok in ranks.items() if 0 <= rank < self._world)
        self.settle(now)

    def call_back(self, callback: Callable[[int], None], now: float) -> None:
        """Call back once, with the number of ranks that are unknown, when it is done; at once if it is."""
        self._callback = callback
        self.settle(now)

    def settle(self, now: float) -> None:
        """Call back if it is done now."""
        state, callback = self.state(now), self._callback
        if state.done and callback is not None:
            self._callback = None
            callback(state.unknown)

    def state(self, now: float) -> CaptureView:
        """How far it is. While it goes on, unknown are those that were said to be; at the end also the silent ones."""
        kept = sum(self._kept.values())
        done = not self._waiting or now >= self.until
        unknown = (self._world if done else len(self._kept)) - kept
        stacks = tuple(self._stacks[rank] for rank in sorted(self._stacks)) if done else ()
        return CaptureView(self.incident, done, kept, unknown, stacks)
