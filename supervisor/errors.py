"""Errors that cross rooms: the line that people see, and the verdict that a checkpoint may not be used."""

from __future__ import annotations

NOT_YET_EXIT = 3
"""Exit code where it can't be said, or done, now."""
REFUSED_EXIT = 4
"""Exit code where somebody else has the right of way: another controller, another plan, another mode."""
HALTED_EXIT = 93
"""Exit code of a run that is halted: do not requeue; a person has to look."""
OWN_FAULT_EXIT = 70
"""Exit code of a fault of ours: nothing that was asked has been answered by it."""


class UserError(Exception):
    """A mistake in a file or an argument, or something that can't be done now. `exit_code` is that of the command."""

    def __init__(self, text: str, exit_code: int = 2) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class NotRestorable(Exception):  # noqa: N818  # the name is the verdict, as the contract has it
    """No attempt may start from this save. `not_yet`: it could not be judged; otherwise it was and is no good."""

    def __init__(self, *reasons: str, not_yet: bool = False) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons
        self.not_yet = not_yet
