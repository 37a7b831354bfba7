"""The way back, rung by rung; nothing but a completed save is ever the answer."""

from __future__ import annotations

import pytest

from policies.facts import CheckpointPhase, CheckpointState, Rejected
from policies.ladder import GONE, Rung, climb

P = CheckpointPhase


def save(step: int, phase: CheckpointPhase = P.COMPLETED, attempt: int = 1, **more: object) -> CheckpointState:
    return CheckpointState(f"a{attempt:04d}-i{step:07d}", attempt, step, phase, **more)  # type: ignore[arg-type]


def test_the_newest_completed_one() -> None:
    rung = climb((save(20), save(40), save(30)))
    assert rung == Rung(save(40))


def test_of_two_at_the_same_step_the_later_completed() -> None:
    first, second = save(40, completed_at=10.0), save(40, attempt=2, completed_at=20.0)
    assert climb((first, second)).checkpoint == second
    assert climb((second, first)).checkpoint == second
    undated = save(40, attempt=3)
    assert climb((first, undated)).checkpoint == first


@pytest.mark.parametrize(
    ("phase", "reasons", "why", "wait"),
    [
        (P.IN_PROGRESS, (), "still being written", False),
        (P.BROKEN, ("2 of 8 files are missing", "no metadata"), "broken: 2 of 8 files are missing; no metadata", False),
        (P.NOT_YET, ("stale file handle",), "not readable yet: stale file handle", True),
        (P.FRAMEWORK_DONE, (), "written, but not verified yet", True),
        (P.ABANDONED, (), "never finished", False),
    ],
)
def test_why_a_newer_one_is_not_used(phase: CheckpointPhase, reasons: tuple[str, ...], why: str, *, wait: bool) -> None:
    newer = save(40, phase, reasons=reasons)
    assert climb((newer, save(20))) == Rung(save(20), (Rejected(newer.id, why),), wait)


def test_nobody_waits_for_an_older_one() -> None:
    assert climb((save(40), save(20, P.NOT_YET))) == Rung(save(40))
    assert climb((save(40), save(40, P.NOT_YET, attempt=2))) == Rung(save(40))


def test_waiting_ends_when_told_otherwise() -> None:
    rung = climb((save(40, P.NOT_YET), save(20)), excluded={"a0001-i0000040": "not readable for an hour"})
    assert rung == Rung(save(20), (Rejected("a0001-i0000040", "not readable for an hour"),))


def test_an_excluded_one_is_passed_over() -> None:
    why = {"a0001-i0000060": "went back behind it", "a0001-i0000040": "failed acceptance"}
    rung = climb((save(60), save(40), save(20)), excluded=why)
    assert rung.checkpoint == save(20)
    assert rung.rejected == tuple(Rejected(name, said) for name, said in why.items())
    assert not climb((save(60, P.NOT_YET), save(20)), excluded=why).wait


def test_the_archive_is_the_last_rung() -> None:
    archived = save(60, location="archive")
    rung = climb((archived, save(20)))
    assert rung == Rung(save(20), (Rejected(archived.id, "only in the archive; the store has one", "archive"),))
    rung = climb((archived, save(20, P.BROKEN)))
    assert rung == Rung(archived, (Rejected("a0001-i0000020", "broken"),))
    assert climb((save(20), save(10, location="archive"))).rejected == ()
    assert climb((save(20), save(20, location="archive"))).rejected == ()


def test_the_store_is_waited_for_before_the_archive_is_used_never_the_other_way() -> None:
    assert climb((save(60, location="archive"), save(20, P.NOT_YET))).wait
    assert climb((save(60, location="archive"), save(80, P.NOT_YET, location="archive"))).wait
    assert not climb((save(60, P.NOT_YET, location="archive"), save(20))).wait


def test_never_any_is_not_the_same_as_none_left() -> None:
    never = climb((save(40, P.BROKEN), save(60, P.IN_PROGRESS)))
    assert (never.checkpoint, never.from_nothing, never.lost) == (None, True, False)
    assert [r.why for r in never.rejected] == ["still being written", "broken"]
    left = climb((), ever=("a0001-i0000020",))
    assert left == Rung(None, (Rejected("a0001-i0000020", GONE),), lost=True)
    excluded = climb((save(20),), excluded={"a0001-i0000020": "digest differs"})
    assert (excluded.from_nothing, excluded.lost) == (False, True)


def test_of_those_that_are_gone_the_newest_are_named() -> None:
    ever = tuple(f"a0001-i{step:07d}" for step in range(10, 60, 10))
    rung = climb((save(50, P.BROKEN),), ever=ever)
    assert [r.id for r in rung.rejected] == ["a0001-i0000050", "a0001-i0000040", "a0001-i0000030", "a0001-i0000020"]


def test_a_start_from_nothing_waits_for_what_may_be_something() -> None:
    rung = climb((save(40, P.NOT_YET),))
    assert (rung.wait, rung.from_nothing, rung.lost) == (True, False, False)
    rung = climb((save(40, P.NOT_YET),), ever=("a0001-i0000040",))
    assert (rung.wait, rung.from_nothing, rung.lost) == (True, False, False)


def test_a_person_chooses_among_completed_ones_only() -> None:
    saves = (save(60), save(40), save(20, P.BROKEN), save(80, P.NOT_YET))
    assert climb(saves, "a0001-i0000040", excluded={"a0001-i0000040": "x"}) == Rung(save(40))
    assert climb(saves, "a0001-i0000020") == Rung(None, (Rejected("a0001-i0000020", "broken"),))
    assert climb(saves, "a0001-i0000080").wait
    assert climb(saves, "a0009-i0000009") == Rung(None, (Rejected("a0009-i0000009", "there is no such save"),))
    assert climb(saves, "a0001-i0000010", ever=("a0001-i0000010",)).rejected[0].why == GONE


def test_a_choice_takes_the_copy_that_is_completed() -> None:
    archived = save(40, location="archive")
    assert climb((save(40, P.BROKEN), archived), archived.id) == Rung(archived)


def test_an_archive_that_cannot_be_read_loses_nothing_and_starts_nothing() -> None:
    for saves, ever in (((), ()), ((), ("a0001-i0000020",)), ((save(20, P.BROKEN),), ())):
        rung = climb(saves, ever=ever, blind=True)
        assert (rung.checkpoint, rung.unseen, rung.lost, rung.from_nothing) == (None, True, False, False)
    assert not climb((save(40, P.NOT_YET),), blind=True).unseen  # the store itself may still have one
    assert climb((save(20),), blind=True) == Rung(save(20))


def test_a_choice_that_may_be_in_the_archive_is_not_refused_blindly() -> None:
    assert climb((), "a0001-i0000020", blind=True).unseen
    assert climb((save(20, P.BROKEN),), "a0001-i0000020", blind=True).unseen
    assert climb((save(20),), "a0001-i0000020", blind=True) == Rung(save(20))


def test_what_was_unfit_in_the_store_may_be_good_in_the_archive() -> None:
    here, there = save(40, P.BROKEN), save(40, location="archive")
    bad = Rejected(here.id, "SUM x")
    rung = climb((here, there), unfit=(bad,))
    assert rung == Rung(there, (bad,))
    twice = climb((here, there), unfit=(bad, Rejected(here.id, "came back rotten", "archive")))
    assert (twice.checkpoint, twice.lost) == (None, True)
    alone = climb((there, save(20, location="archive")), unfit=(Rejected(there.id, "refused", "archive"),))
    assert alone == Rung(save(20, location="archive"), (Rejected(there.id, "refused", "archive"),))


def test_a_copy_of_what_the_store_has_is_no_rung_of_its_own() -> None:
    """What could not be made ready though the store shows it whole: the copy would not even be fetched."""
    rung = climb((save(40), save(40, location="archive")), unfit=(Rejected(save(40).id, "the view is taken"),))
    assert (rung.checkpoint, rung.lost) == (None, True)


def test_a_start_from_the_archive_names_what_it_gives_up() -> None:
    ever = tuple(f"a0001-i{step:07d}" for step in (10, 20, 30, 40))
    rung = climb((save(20, location="archive"),), ever=ever)
    assert [r.id for r in rung.rejected] == ["a0001-i0000040", "a0001-i0000030"]
    assert {r.why for r in rung.rejected} == {GONE}
    assert climb((save(20),), ever=ever).rejected == ()


def test_a_copy_that_is_not_complete_is_no_copy() -> None:
    half = save(40, P.IN_PROGRESS, location="archive")
    rung = climb((half, save(20, location="archive")))
    assert rung.rejected == (Rejected(half.id, "its copy is not complete", "archive"),)
    assert not rung.wait
