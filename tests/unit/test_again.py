"""Reminders: again while nobody answers, to more people after a while, once each whatever restarts; and who was told."""

from dataclasses import replace

import pytest
from test_notices import halted, waiting
from test_story_example import DIGEST

from policies.history import History, Telling
from policies.reasons import Reason
from policies.rules import TellingRules
from supervisor.fold import fold_all
from supervisor.journal.entries import ENTRY, Carried, Chosen, EpochBegan, Resumed, Stamped, Told, Withdrawn
from supervisor.telling.again import reminder
from supervisor.telling.notices import notice
from supervisor.telling.plan_page import plan_text
from supervisor.telling.story import status_text
from supervisor.telling.told import matter, told_lines

RULES = TellingRules()
KEY = f"plan:{DIGEST}"
FIRST = 1_000_000_000.0


def told(history, *entries, at=FIRST):
    return fold_all(history, [Stamped(n, 1, at, one) for n, one in enumerate(entries, 1)])


def after(seconds, history, known, rules=RULES):
    return reminder(history, rules, replace(known, now=FIRST + seconds))


def test_an_open_plan_is_told_again_and_after_an_hour_to_more_people():
    history, known = waiting()
    history = told(history, Told(KEY, "stopped", 2))
    assert after(899, history, known) is None
    sent = []
    for second in range(0, 4 * 3600, 30):
        again = after(second, history, known)
        if again is not None:
            sent.append((second, again.escalates))
            history = told(history, Told(again.key, again.title, 2), at=FIRST + second)
    assert sent == [(900, False), (1800, False), (3600, True), (7200, True)]


def test_a_reminder_is_the_same_plan_with_what_waiting_has_cost():
    history, known = waiting()
    history = told(history, Told(KEY, "stopped", 2))
    begun = history.incidents[0].times.last_good
    known = replace(known, now=begun + 3600)
    history = replace(history, tellings={KEY: Telling(KEY, "stopped", begun + 3600 - 38 * 60 - 20, 2)})
    again = reminder(history, RULES, known)
    assert again.title == "relight llm500b: still waiting, 38 min, 5,120 GPU-hours so far"
    assert (
        again.text.splitlines()[1:] == notice(replace(history, told=frozenset()), "plan", known).text.splitlines()[1:]
    )
    assert (again.what, again.plan) == ("reminder", DIGEST)
    # After an hour it says so.
    late = reminder(replace(history, tellings={KEY: Telling(KEY, "stopped", begun, 2)}), RULES, known)
    assert late.title == "relight llm500b: still waiting, 1 h, 5,120 GPU-hours so far; nobody has answered"


def test_a_halt_is_told_again_but_for_one_that_a_person_made():
    history, known = halted()
    history = told(history, Told(matter(history), "halted", 1))
    again = after(1000, history, known)
    assert again.title.startswith("relight llm500b: still halted, 16 min")
    assert "relight resume llm500b" in again.body
    for made in (Reason.PERSON_HALTED, Reason.REFUSED):
        known_one = replace(history, halted=replace(history.halted, reason=made))
        known_one = told(known_one, Told(matter(known_one), "halted", 1))
        assert after(10_000, known_one, known) is None


@pytest.mark.parametrize("answer", ["approvals", "refused"])
def test_an_answer_ends_it(answer):
    history, known = waiting()
    history = told(history, Told(KEY, "stopped", 2))
    assert after(1000, history, known)
    assert after(1000, replace(history, **{answer: frozenset({DIGEST})}), known) is None
    assert after(1000, replace(history, paused=True), known) is None


def test_what_nobody_was_told_is_not_told_again():
    history, known = waiting()
    assert after(10_000, history, known) is None
    assert reminder(History(), RULES, known) is None


def test_never_and_more_often():
    history, known = waiting()
    history = told(history, Told(KEY, "stopped", 2))
    assert after(10**7, history, known, TellingRules(remind_s=0, escalate_s=0)) is None
    assert after(59, history, known, TellingRules(remind_s=0, escalate_s=60)) is None
    assert after(60, history, known, TellingRules(remind_s=0, escalate_s=60)).escalates
    assert not after(10**7, history, known, TellingRules(remind_s=60, escalate_s=0)).escalates
    # At most a day apart, however long it waits.
    keys = {after(day * 86_400.0, history, known).key for day in range(10, 40)}
    assert len(keys) == 30


def test_a_controller_that_comes_back_repeats_nothing_and_says_only_the_newest():
    history, known = waiting()
    history = told(history, Told(KEY, "stopped", 1), Carried(KEY, ("slack (urls 1)",), (), 1, given_up=False))
    first = after(900, history, known)
    history = told(
        history, Told(first.key, first.title, 1), Carried(first.key, ("slack (urls 1)",), (), 1, given_up=False)
    )
    history = told(history, EpochBegan(2, "h", 1, 1, "x"), at=FIRST + 950)
    assert notice(history, "plan", known) is None
    assert after(1000, history, known) is None
    assert after(1800, history, known).key.startswith("again:1800:")
    assert after(9000, history, known).key.startswith("again:7200:")


def test_what_the_epoch_before_had_not_brought_to_everybody_is_told_again_to_the_rest():
    history, known = waiting()
    some = Carried(KEY, ("slack (urls 1)",), (("mailtos (urls 2)", "no route"),), 1, given_up=False)
    history = told(history, Told(KEY, "stopped", 2), some, EpochBegan(2, "h", 1, 1, "x"))
    assert notice(history, "plan", known).key == KEY
    assert history.tellings[KEY].reached == ("slack (urls 1)",)
    again = told(history, Told(KEY, "stopped", 2), at=FIRST + 500)
    assert (again.tellings[KEY].at, again.tellings[KEY].reached) == (FIRST, ("slack (urls 1)",))
    for ended in (Carried(KEY, ("a", "b"), (), 1, given_up=False), Carried(KEY, (), (("a", "no"),), 5, given_up=True)):
        whole = told(waiting()[0], Told(KEY, "stopped", 2), ended, EpochBegan(2, "h", 1, 1, "x"))
        assert notice(whole, "plan", known) is None
    # Where nobody is to be told there is nothing to bring.
    none = told(waiting()[0], Told(KEY, "stopped"), EpochBegan(2, "h", 1, 1, "x"))
    assert notice(none, "plan", known) is None


@pytest.mark.parametrize(
    "entry", [Withdrawn(DIGEST, "n0643 is gone"), Resumed("li", ""), Chosen(None, "li")], ids=lambda e: e.kind
)
def test_a_plan_that_comes_back_the_same_is_told_again_and_its_reminders_begin_anew(entry):
    history, _ = waiting()
    again = f"again:900:{KEY}"
    history = told(history, Told(KEY, "stopped", 1), Told(again, "still", 1), Told("halt:x:1", "other", 1))
    gone = told(history, entry)
    assert gone.told == {"halt:x:1"}
    assert set(gone.tellings) == {"halt:x:1"}


def test_who_was_told_stands_in_the_status_and_on_the_plan():
    history, known = waiting()
    known = replace(known, now=FIRST)
    bad = Carried(KEY, ("slack (urls 1)",), (("mailtos (urls 2)", "no route"),), 2, given_up=False)
    history = told(history, Told(KEY, "stopped", 2), bad)
    lines = [
        "Told 2001-09-09 09:46:40 CST: slack (urls 1).",
        "Not delivered: mailtos (urls 2): no route; 2 tries, it is tried again.",
    ]
    assert told_lines(history, known) == lines
    for text in (status_text(history, None, FIRST, known), plan_text(history, known)):
        assert [line for line in text.splitlines() if line in lines] == lines
    worse = told(
        history, replace(bad, reached=(), tries=5, given_up=True), Told(f"again:900:{KEY}", "still", 2), at=FIRST + 900
    )
    assert told_lines(worse, known)[0].startswith(
        "Told 2001-09-09 09:46:40 CST, 1 reminder, the last 2001-09-09 10:01:40 CST"
    )
    never = told(waiting()[0], Told(KEY, "stopped", 1), replace(bad, reached=(), tries=5, given_up=True))
    assert told_lines(never, known)[0].endswith(": nobody has got it yet.")
    assert told_lines(never, known)[1].endswith("5 tries, given up.")
    assert told_lines(told(waiting()[0], Told(KEY, "stopped")), known) == []
    assert told_lines(History(), known) == []


def test_news_of_a_notice_that_is_no_longer_known_changes_nothing():
    history, _ = waiting()
    assert told(history, Carried(KEY, ("a",), (), 1, given_up=False)) == history


def test_what_older_journals_say_of_notices_is_understood():
    old = ENTRY.validate_json('{"kind":"told","key":"plan:x","title":"stopped"}')
    assert old == Told("plan:x", "stopped")
    history = told(History(), old, EpochBegan(2, "h", 1, 1, "x"))
    assert history.told == {"plan:x"}  # nobody knows whether it arrived, and it is not told again
