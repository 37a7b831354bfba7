"""What a program did that its device then complains of: whose word on it counts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from policies.clues import Case, Clue
from policies.ordering import surely_before

OF_PROGRAMS: Final = frozenset({"xid-program"})
"""What the driver says of a program's error. The program, where it names the sample or the number, says it better."""

PROGRAM_FAULTS: Final = frozenset({"xid-program", "cuda-program"})
"""Kinds in which a device meets an address or an instruction that is none of the program's."""


def says_better(program: Clue, driver: Clue, case: Case) -> bool:
    """Does a program name what its device stopped at: an index from the data, a number that is none?"""
    if driver.kind not in OF_PROGRAMS or program.grade < 3 or program.category not in ("data", "numeric"):
        return False
    here = program.node == driver.node or (None in (program.node, driver.node) and len(case.nodes) <= 1)
    return here and not surely_before(driver, program)


def in_kernels(first: Clue, live: Sequence[Clue]) -> bool:
    """Did a device fault, and do all programs that say what theirs met stand in a library of kernels?"""
    if first.kind not in PROGRAM_FAULTS:
        return False
    told = [c.frames for c in live if c.kind == "cuda-program" and c.frames]
    return bool(told) and set(told) == {"kernels"}
