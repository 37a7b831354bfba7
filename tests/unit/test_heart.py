"""A dead man's switch hears a beat while the loop turns and the journal can be written; else it hears nothing."""

from pathlib import Path

import pytest
from sinks import http_sink
from structlog.testing import capture_logs

from supervisor.telling.carrying import Outcome
from supervisor.telling.heart import STILL_S, Heart, heart_for, journal_takes_writes

LIMIT_S = 60


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def heart(writes=lambda: "", ok=True, clock=None):
    beats = []
    one = Heart(60, writes, lambda: (beats.append(1), Outcome(ok, "" if ok else "HTTP 500"))[1], clock or Clock())
    return one, beats


def test_it_beats_while_the_loop_turns_and_no_longer():
    clock = Clock()
    one, beats = heart(clock=clock)
    assert one.once() == ""
    clock.now = STILL_S + 1
    assert one.once() == "the loop has not turned for 91 s"
    one.ticked()
    assert one.once() == ""
    assert len(beats) == 2


def test_it_does_not_beat_while_the_journal_cannot_be_written(tmp_path):
    assert journal_takes_writes(str(tmp_path)) == ""
    gone = str(tmp_path / "gone")
    one, beats = heart(lambda: journal_takes_writes(gone))
    assert one.once() == "No such file or directory"
    Path(gone).mkdir()
    assert one.once() == ""
    assert len(beats) == 1
    assert len(list(Path(gone).iterdir())) == 1


def test_what_stands_in_the_way_of_a_write_is_seen(tmp_path):
    (tmp_path / "beat.tmp" / "in the way").mkdir(parents=True)
    assert journal_takes_writes(str(tmp_path)) == "Is a directory"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.usefixtures("heard")
def test_a_change_is_logged_once_and_training_goes_on():
    why = ["", "", "no room", "no room", ""]
    one, _ = heart(lambda: why.pop(0))
    with capture_logs() as lines:
        for _ in range(5):
            one.once()
    assert [(line["event"], line.get("why")) for line in lines] == [
        ("heartbeat-failed", "no room"),
        ("heartbeat-well", None),
    ]


@pytest.mark.usefixtures("heard")
def test_a_switch_that_answers_badly_is_logged():
    one, _ = heart(ok=False)
    with capture_logs() as lines:
        assert one.once() == "HTTP 500"
    assert lines[0]["event"] == "heartbeat-failed"


def test_the_real_one_beats_from_a_thread_of_its_own(tmp_path):
    assert heart_for("", 60, str(tmp_path), 5) is None
    with http_sink() as sink:
        one = heart_for(f"http://127.0.0.1:{sink.port}/beat", 0.05, str(tmp_path), LIMIT_S)
        one.start()
        for _ in range(2):
            assert sink.calls.acquire(timeout=LIMIT_S)
        one.stop()
