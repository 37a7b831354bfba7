"""Where a rank sits, and the process groups that follow. The order is Megatron's: tp first, then dp, then pp."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist


@dataclass(frozen=True, slots=True)
class Place:
    """A rank's coordinates."""

    tp: int
    pp: int
    dp: int


@dataclass(frozen=True, slots=True)
class Layout:
    """TP x PP x DP over ranks 0 .. tp * pp * dp - 1."""

    tp: int
    pp: int
    dp: int

    def place(self, rank: int) -> Place:
        """The coordinates of a rank."""
        return Place(tp=rank % self.tp, dp=rank // self.tp % self.dp, pp=rank // (self.tp * self.dp))

    def rank(self, place: Place) -> int:
        """The rank at these coordinates."""
        return place.tp + self.tp * (place.dp + self.dp * place.pp)

    def peers(self, place: Place, *along: str) -> list[int]:
        """The ranks that share all coordinates with `place` but those named in `along`; ascending."""
        spans = {
            axis: range(getattr(self, axis)) if axis in along else (getattr(place, axis),)
            for axis in ("tp", "pp", "dp")
        }
        return sorted(self.rank(Place(t, p, d)) for t in spans["tp"] for p in spans["pp"] for d in spans["dp"])


@dataclass(frozen=True, slots=True)
class Groups:
    """The process groups of one rank; None where the rank would be alone. `save` is never shared with training.

    A save that runs beside the training would take the messages of a shared group: every rank then stalls (measured).
    """

    layout: Layout
    place: Place
    tp: Any
    dp: Any
    pp: Any
    mp: Any
    save: Any
    previous: int | None  # rank of the stage before, on the same tp and dp
    following: int | None


def join(layout: Layout, rank: int, timeout_s: float, save_timeout_s: float) -> Groups:
    """Meet the other ranks at MASTER_ADDR:MASTER_PORT and make the groups. Raises what torch.distributed raises.

    Each group is given its time limit: `new_group` does not take over that of the first group, but 30 minutes.
    """
    limit = timedelta(seconds=timeout_s)
    dist.init_process_group(
        "gloo", init_method="env://", rank=rank, world_size=layout.tp * layout.pp * layout.dp, timeout=limit
    )
    made: dict[str, Any] = {}
    # Only its members make a group. All ranks make the same kinds in the same order: so the names of groups agree.
    for name, along in (("tp", ("tp",)), ("dp", ("dp",)), ("pp", ("pp",)), ("mp", ("tp", "pp"))):
        made[name] = _own_group(layout, rank, along, limit)
    save = dist.new_group(timeout=timedelta(seconds=save_timeout_s))
    place = layout.place(rank)
    column = layout.peers(place, "pp")
    return Groups(
        layout,
        place,
        **made,
        save=save,
        previous=column[place.pp - 1] if place.pp > 0 else None,
        following=column[place.pp + 1] if place.pp + 1 < layout.pp else None,
    )


def _own_group(layout: Layout, rank: int, along: tuple[str, ...], limit: timedelta) -> Any:
    ranks = layout.peers(layout.place(rank), *along)
    if len(ranks) == 1:
        return None
    return dist.new_group(ranks, timeout=limit, use_local_synchronization=True)
