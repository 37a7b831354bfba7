"""The job and a stop that was asked for, as `relight status` says them."""

from dataclasses import replace

from policies.facts import JobPhase, JobView, View
from policies.history import History, StopWish
from supervisor.telling.story import Known, status_text

JOB = JobView("4711", "s", JobPhase.RUNNING, "RUNNING", ends_at=3600.0, ends_by="time limit")


def said(history: History, view: View) -> str:
    return status_text(history, view, 100.0, Known())


def test_a_job_says_when_it_ends_and_what_follows():
    assert "Job 4711: running, ends 01:00" in said(History(run="demo"), View(job=JOB))
    assert "(time limit); next: 4712." in said(History(run="demo"), View(job=replace(JOB, next="4712")))
    assert "Job" not in said(History(run="demo"), View())


def test_a_stop_says_who_why_and_what_then():
    wish = StopWish("li", 50.0, "next-job", after_save=True, why="new\x1b[31m spares")
    text = said(History(run="demo", stop_asked=wish), View())
    assert "Stop after the next save asked for by li" in text
    assert "spares. Then it goes on in its next job." in text
    assert "\x1b" not in text
    assert "has left its job" in said(History(run="demo", ended="next-job"), View())
