"""The one place where a pickle is read, with every name closed. Only the process of `child.py` comes here.

A pickle is a program: it names functions and has them called. What it may name is given by the caller, as inert
stand-ins; any other name ends the reading, and nothing that a pickle names is ever imported.
"""

from __future__ import annotations

import pickle  # noqa: TID251 - closed below
from collections.abc import Callable
from typing import Any, NoReturn


class RefusedError(Exception):
    """The bytes are no pickle that we believe. The text says what was met."""


class CutError(RefusedError):
    """The pickle ends before its end, as one does that is still being written."""


Names = Callable[[str, str], Any]
"""(module, name) -> the stand-in. Raises RefusedError for a name that is not allowed."""


class _Closed(pickle.Unpickler):
    def __init__(self, file: Any, names: Names, persistent: Callable[[Any], Any]) -> None:
        super().__init__(file)
        self._names = names
        self._persistent = persistent

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        return self._names(module_name, global_name)

    def persistent_load(self, pid: Any, /) -> Any:
        return self._persistent(pid)


def refuse(pid: Any) -> NoReturn:
    """For pickles without persistent ids. Raises RefusedError."""
    raise RefusedError(f"it holds a persistent id, {str(type(pid))[:40]}")


def load(file: Any, names: Names, persistent: Callable[[Any], Any] = refuse) -> Any:
    """Read one pickle from an open binary file.

    Raises RefusedError (CutError when the file ends too early); MemoryError when the process's limit is reached.
    """
    try:
        return _Closed(file, names, persistent).load()
    except (RefusedError, MemoryError):
        raise
    except EOFError:
        raise CutError("it is empty, or cut short") from None
    except Exception as error:  # noqa: BLE001 - whatever a hostile stream makes of the stand-ins, it is no answer
        if "truncated" in str(error):
            raise CutError("it is cut short") from None
        raise RefusedError(f"it can't be unpickled: {type(error).__name__}: {str(error)[:120]}") from None
