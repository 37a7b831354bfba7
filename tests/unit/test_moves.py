"""How far copies have come: the last word of each, and never more than a few."""

from __future__ import annotations

from supervisor.moves import KEPT, Moves


def test_the_last_word_counts() -> None:
    moves = Moves()
    assert moves.shown() == ()
    moves(1, 10, "copying a")
    moves(5, 20, "restoring b")
    moves(10, 10, "copying a")
    assert moves.shown() == (("copying a", 10, 10), ("restoring b", 5, 20))


def test_it_does_not_grow() -> None:
    moves = Moves()
    for number in range(10 * KEPT):
        moves(1, 2, f"copying {number}")
    assert len(moves.shown()) <= KEPT
    assert moves.shown()[-1] == (f"copying {10 * KEPT - 1}", 1, 2)
