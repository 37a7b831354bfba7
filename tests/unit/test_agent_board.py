"""What the agent remembers of its ranks, and tells again."""

from __future__ import annotations

from supervisor.agent.board import Board
from supervisor.agent.uplink import SPOOL, Uplink, read_endpoint, read_token


def said(kind, rank=0, attempt=1, **more):
    return {"k": kind, "r": rank, "a": attempt, **more}


def test_what_is_passed_on_at_once():
    board = Board()
    assert board.take(said("hello"), 0.0)
    assert not board.take(said("step", step=1), 0.0)
    assert board.take(said("step", step=1, loss=None), 0.0)
    assert not board.take(said("fly"), 0.0)
    assert not board.take(["hello"], 0.0)
    assert board.refused == 2


def test_a_word_for_an_attempt_that_never_was_does_not_make_a_rank_unheard():
    board = Board(launched=lambda attempt: attempt <= 2)
    assert board.take(said("hello"), 0.0)
    assert not board.take(said("done", attempt=99), 0.0)
    assert board.take(said("hello", attempt=2), 0.0)
    assert not board.take(said("hello", rank=1, attempt=99), 0.0)
    assert [row[:2] for row in board.rows(0.0)] == [[0, 2]]
    assert board.refused == 2


def test_idle_time_runs_from_the_last_move():
    board = Board()
    board.take(said("step", step=1), 10.0)
    board.take(said("step", step=1), 12.0)
    assert board.rows(13.0) == [[0, 1, "step", 1, 3.0]]
    board.take(said("phase", phase="save"), 14.0)
    assert board.rows(15.0) == [[0, 1, "save", 1, 1.0]]
    board.take(said("phase", phase="dancing"), 15.0)
    assert board.rows(15.0)[0][2] == "save"


def test_a_newer_attempt_takes_over_and_an_older_one_is_not_heard():
    board = Board()
    board.take(said("step", step=9, attempt=2), 0.0)
    assert not board.take(said("hello", attempt=1), 0.0)
    assert board.rows(0.0) == [[0, 2, "step", 9, 0.0]]
    board.take(said("hello", attempt=3), 0.0)
    assert board.rows(0.0) == [[0, 3, "start-up", -1, 0.0]]


def test_a_start_with_another_pid_begins_anew_and_a_late_one_does_not():
    board = Board()
    board.take(said("hello", pid=5), 0.0)
    board.take(said("step", step=9), 0.0)
    board.take(said("start", pid=5), 0.0)
    assert board.rows(0.0)[0][3] == 9
    board.take(said("start", pid=6), 0.0)
    assert board.rows(0.0)[0][3] == -1
    assert board.pids(1) == {0: 6}


def test_a_rank_that_was_refused_has_no_row():
    board = Board()
    board.take(said("exit", rank=0), 0.0)
    board.take(said("start", rank=1, pid=7), 0.0)
    board.take(said("exit", rank=1), 0.0)
    assert [row[0] for row in board.rows(0.0)] == [1]
    assert board.has_ended(0, 1)
    assert board.pids(1) == {}


def test_the_last_of_each_kind_and_the_last_rows_are_told_again():
    board = Board()
    for message in (said("exit"), said("start", pid=5), said("phase", phase="load"), said("phase", phase="step")):
        board.take(message, 0.0)
    for step in range(100):
        board.take(said("step", step=step, loss=2.0), 0.0)
    told = board.again(1)
    assert [m["k"] for m in told if m["k"] != "step"] == ["start", "phase", "exit"]
    assert told[1]["phase"] == "step"
    assert [m["step"] for m in told if m["k"] == "step"] == list(range(36, 100))
    assert board.again(2) == []


def test_drop_counts_of_ranks_add_up():
    board = Board()
    board.take(said("step", step=1, dropped=3), 0.0)
    board.take(said("step", step=2, dropped=2), 0.0)
    board.take(said("step", step=3, dropped=-2), 0.0)
    assert board.dropped == 5


def test_the_spool_is_bounded_and_keeps_the_earliest(tmp_path):
    uplink = Uplink(str(tmp_path), dict, lambda _: None, lambda _: None)
    for n in range(SPOOL + 3):
        uplink.send({"n": n})
    uplink.send({"type": "beat"}, keep=False)
    assert (uplink.spooled, uplink.dropped) == (SPOOL, 3)


def test_an_endpoint_that_makes_no_sense_is_none(tmp_path):
    for text in (
        "",
        "[]",
        '{"host":1}',
        '{"host":"a","port":0,"epoch":1}',
        '{"host":"a","port":true,"epoch":1}',
        "[" * 9999,
    ):
        (tmp_path / "endpoint.json").write_text(text)
        assert read_endpoint(str(tmp_path)) is None
    (tmp_path / "endpoint.json").write_text('{"host":"a","port":9,"epoch":1,"more":2}')
    assert read_endpoint(str(tmp_path)).port == 9


def test_a_token_that_is_empty_or_not_there_is_none(tmp_path):
    assert read_token(str(tmp_path)) is None
    (tmp_path / "token").write_text("\n")
    assert read_token(str(tmp_path)) is None
    (tmp_path / "token").write_bytes(b"abc\n")
    assert read_token(str(tmp_path)) == "abc"
