"""The whole loop with real processes, one short case of each kind. The long form is `relight bench prove`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("torch")
from supervisor.bench import nodes
from supervisor.bench.proofs import controller, limited, modes, planted
from supervisor.bench.proofs.runs import SMALL, launched_once, ledger_holds, running, undisturbed
from supervisor.bench.proofs.work import Work

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("real-loop")]


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The hash of a run that nobody touches."""
    work = Work("calm", str(tmp_path_factory.mktemp("calm")))
    found = undisturbed(work, SMALL)
    assert work.ok, work.checks
    return found


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work("live", str(tmp_path))


def test_a_rank_and_the_controller_are_killed_and_the_bits_are_the_same(work: Work, calm: str) -> None:
    with running(work, "hurt", SMALL) as run:
        run.wait_step(6)
        os.kill(nodes.rank_pid(run.run.root, 1, 1), signal.SIGKILL)
        run.wait_for("attempt 2", lambda: run.attempt() >= 2 or None)
        os.kill(run.controller_pid(), signal.SIGKILL)
        assert run.wait_end(120) == 0
        history = run.history()
        assert history.epoch == 2
        assert run.slots(2) == run.slots(1)
        (incident,) = history.incidents
        assert incident.closed
        assert [f.rank for f in incident.diagnosis.first] == [1]
        assert launched_once(run, history)
        assert ledger_holds(history, SMALL.steps)
        assert run.weights_hash() == calm


def test_a_lost_second_moment_is_refused(work: Work) -> None:
    planted.refused_under_relight(work, "lost-second-moment")
    assert work.ok, work.checks
    assert "digest" in work.measured["under_relight"]["lost-second-moment"]["refusal"]


def test_a_person_is_asked_and_only_the_right_word_counts(work: Work, calm: str) -> None:
    modes.approve(work, calm)
    assert work.ok, work.checks


def test_a_script_that_only_prints_lines(work: Work) -> None:
    limited.prove(work)
    assert work.ok, work.checks


def test_the_controller_dies_between_intent_and_launch(work: Work, calm: str) -> None:
    controller.survive(work, "before", "launch", 2, calm)
    assert work.ok, work.checks


def test_the_controller_dies_when_it_has_told_one_node_of_a_launch(work: Work, calm: str) -> None:
    controller.survive(work, "amid", "launch", 2, calm)
    assert work.ok, work.checks


def test_other_weights_are_told(work: Work) -> None:
    """The comparison itself is seen to fail: nothing hurts this run, and the hash that it is held to is another's."""
    controller.survive(work, "after", "begin", 1, "0" * 32)
    assert [what for what, held in work.checks.items() if not held] == ["after begin 1: ends with 0 and the same bits"]
