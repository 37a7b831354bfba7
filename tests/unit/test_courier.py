"""The courier: nobody waits for it, each target by itself, tried again, given up, and dropped once it was answered."""

from queue import Queue
from threading import Event, current_thread, get_ident

import pytest
from sinks import http_sink, smtp_sink

from supervisor.journal.entries import Carried
from supervisor.telling.carrying import Outcome
from supervisor.telling.courier import UNDER_WAY_MAX, Courier
from supervisor.telling.notices import Notice
from supervisor.telling.targets import Targets

LIMIT_S = 60
TOLD = Notice("plan:8f", "plan", "demo", "relight demo: stopped", "one\ntwo\nrelight approve demo --plan 8f", "8f")
TWO = Targets(urls=("json://a", "mailtos://b"), escalate_urls=("slack://c",), link="https://ops:8440")
A, B, C = "json (urls 1)", "mailtos (urls 2)", "slack (escalate_urls 1)"


class News:
    """Waits for what a courier says, without a clock."""

    def __init__(self, targets, carry=None, pauses_s=(0.0, 0.0)):
        self._came = Queue()
        self.courier = Courier(targets, lambda: self._came.put(None), carry, pauses_s)
        self.last = None

    def until(self, wanted):
        while not (self.last and wanted(self.last)):
            self._came.get(timeout=LIMIT_S)
            for one in self.courier.news():
                self.last = one
        return self.last


def test_each_target_is_told_by_itself_with_the_link():
    said = Queue()

    def carry(notice, story, url):
        said.put((url, notice.body, story, get_ident()))
        return Outcome(ok=True)

    news = News(TWO, carry)
    assert news.courier.send(TOLD, "story") == 2
    end = news.until(lambda one: len(one.reached) == 2)
    assert end == Carried("plan:8f", end.reached, (), 1, given_up=False)
    assert set(end.reached) == {A, B}
    came = [said.get(timeout=LIMIT_S) for _ in range(2)]
    assert {one[0] for one in came} == {"json://a", "mailtos://b"}
    assert all("https://ops:8440/#run=demo&plan=8f" in one[1] and one[2] == "story" for one in came)
    assert get_ident() not in {one[3] for one in came}


def test_one_that_hangs_holds_up_neither_the_caller_nor_the_others():
    held = Event()

    def carry(notice, story, url):
        if url == "json://a":
            held.wait()
        return Outcome(ok=True)

    news = News(TWO, carry)
    news.courier.send(TOLD, "")
    assert news.until(lambda one: one.reached == (B,)).given_up is False
    held.set()
    news.until(lambda one: set(one.reached) == {A, B})


def test_what_failed_is_tried_again_and_only_that():
    tries = []

    def carry(notice, story, url):
        tries.append(url)
        return Outcome(ok=url != "json://a" or tries.count(url) == 3, why="no route")

    news = News(TWO, carry)
    news.courier.send(TOLD, "")
    end = news.until(lambda one: len(one.reached) == 2)
    assert (end.failed, end.tries, end.given_up) == ((), 3, False)
    assert sorted(tries) == ["json://a"] * 3 + ["mailtos://b"]


def test_it_is_given_up_after_so_many_tries_and_that_is_said():
    news = News(TWO, lambda *given: Outcome(ok=given[2] != "json://a", why="no route"))
    news.courier.send(TOLD, "")
    end = news.until(lambda one: one.given_up)
    assert end == Carried("plan:8f", (B,), ((A, "no route"),), 3, given_up=True)


def test_what_was_answered_is_not_tried_again():
    first, pauses = Event(), (0.0, LIMIT_S * 10.0)

    def carry(notice, story, url):
        first.set()
        return Outcome(ok=False, why="no route")

    news = News(Targets(urls=("json://a",)), carry, pauses)
    news.courier.send(TOLD, "")
    news.until(lambda one: one.tries == 2)
    assert news.courier.news("plan:8f", only=True) == []
    news.courier.news("plan:other", only=True)
    assert news.until(lambda one: one.given_up) == Carried("plan:8f", (), (), 2, given_up=True)


def test_a_reminder_is_about_its_plan_and_a_warning_about_itself():
    held = Event()
    news = News(Targets(urls=("json://a",)), lambda *_: Outcome(ok=held.wait(), why=""))
    for key, what in (("again:900:plan:8f", "reminder"), ("warning:x:1", "warning")):
        news.courier.send(Notice(key, what, "demo", "t", "b"), "")
    news.courier.news("plan:8f", only=True)
    assert not news.courier._parcels["again:900:plan:8f"].over.is_set()
    news.courier.news(None, only=True)
    assert news.courier._parcels["again:900:plan:8f"].over.is_set()
    assert not news.courier._parcels["warning:x:1"].over.is_set()
    held.set()


def test_those_who_were_reached_before_are_left_out_and_the_others_only_when_it_escalates():
    said = Queue()
    news = News(TWO, lambda *given: (said.put(given[2]), Outcome(ok=True))[1])
    assert news.courier.send(TOLD, "", reached=(A, B)) == 2
    up = Notice("again:3600:plan:8f", "reminder", "demo", "t", "b", escalates=True)
    assert news.courier.send(up, "", reached=(A,)) == 3
    assert set(news.until(lambda one: len(one.reached) == 2).reached) == {B, C}
    assert {said.get(timeout=LIMIT_S) for _ in range(2)} == {"mailtos://b", "slack://c"}
    assert said.empty()


def test_without_targets_nobody_is_told_and_nothing_is_said():
    news = News(Targets())
    assert news.courier.send(TOLD, "") == 0
    assert news.courier.news() == []


def test_too_many_at_a_time_are_refused_and_that_is_said():
    held = Event()
    news = News(Targets(urls=("json://a",)), lambda *_: Outcome(ok=held.wait()))
    for number in range(UNDER_WAY_MAX):
        news.courier.send(Notice(f"warning:{number}", "warning", "demo", "t", "b"), "")
    assert news.courier.send(TOLD, "") == 1
    (refused,) = news.courier.news()
    assert (refused.key, refused.given_up) == ("plan:8f", True)
    assert "on their way already" in refused.failed[0][1]
    held.set()


def test_the_same_told_anew_takes_the_place_of_the_one_before():
    held, calls, threads = Event(), Queue(), []

    def carry(notice, story, url):
        calls.put(story)
        threads.append(current_thread())
        if story == "old":
            held.wait()
            return Outcome(ok=False, why="old")
        return Outcome(ok=True)

    news = News(Targets(urls=("json://a",)), carry, pauses_s=(LIMIT_S * 10.0,))
    news.courier.send(TOLD, "old")
    assert calls.get(timeout=LIMIT_S) == "old"
    news.courier.send(TOLD, "new")
    assert news.until(lambda one: one.reached == (A,)).tries == 1
    held.set()
    for thread in threads:
        thread.join(LIMIT_S)  # the old one neither waits to try again
        assert not thread.is_alive()
    assert news.courier.news() == []  # nor says anything of what has arrived
    assert calls.get(timeout=LIMIT_S) == "new"
    assert calls.empty()


@pytest.mark.parametrize("status", [200, 500])
def test_real_gateways_through_children(status):
    """One web hook and one mail server; the mail server always takes it."""
    with http_sink() as hook, smtp_sink() as mail:
        hook.status = status
        letter = f"mailto://127.0.0.1:{mail.port}?from=r@example.org&to=o@example.org&smtp=127.0.0.1&mode=insecure"
        news = News(Targets(urls=(hook.url(), letter), deadline_s=LIMIT_S), pauses_s=())
        news.courier.send(TOLD, "")
        end = news.until(lambda one: len(one.reached) + len(one.failed) == 2)
        assert mail.came.get_nowait()
    assert end.reached == (("mailto (urls 2)",) if status == 500 else end.reached)
    assert len(end.reached) == (1 if status == 500 else 2)
    assert end.given_up is (status == 500)
    assert not [s for s in ("us3rname", "passw0rd", "t0ps3cret") if s in str(end)]
