"""The one kind of error that people see: a line that says what, where, and what would be right."""

from __future__ import annotations


class UserError(Exception):
    """A mistake in a file or an argument, or something that can't be done now. `exit` is the exit code."""

    def __init__(self, text: str, exit_code: int = 2) -> None:
        super().__init__(text)
        self.exit_code = exit_code
