"""Step rows: written as they come, read back with suspicion, laid under a replay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from builders import back, row, training

from policies.facts import FaultClass, StepRow
from policies.history import History
from supervisor.attempt_files import RunFiles
from supervisor.rundir import RunDir
from supervisor.step_rows import StepFile, read_rows, reference


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    one = RunDir(str(tmp_path))
    one.create()
    return one


@pytest.fixture
def file(run: RunDir) -> Iterator[StepFile]:
    one = StepFile(run)
    yield one
    one.close()


def path(run: RunDir, attempt: int = 1) -> Path:
    return Path(run.path("steps", f"a{attempt:04d}.jsonl"))


def test_rows_come_back_each_from_its_attempt(run: RunDir, file: StepFile) -> None:
    rows = [row(1), row(2), row(2, attempt=2), row(3)]
    file.write(rows)
    file.write([])
    assert list(read_rows(run, 1)) == [row(1), row(2), row(3)]
    assert list(read_rows(run, 2)) == [row(2, attempt=2)]
    assert list(read_rows(run, 1, after=2)) == [row(3)]
    assert list(read_rows(run, 9)) == []


def test_what_is_not_known_stays_unknown(run: RunDir, file: StepFile) -> None:
    bare = replace(row(1), loss=None, lr=None, grad_norm=None, batch=None)
    file.write([bare])
    assert list(read_rows(run, 1)) == [bare]


@pytest.mark.parametrize("cut", [1, 5, 60])
def test_a_torn_row_costs_itself_only(run: RunDir, file: StepFile, cut: int) -> None:
    """The controller died in mid-write; the next one goes on behind it."""
    file.write([row(1), row(2)])
    file.close()
    whole = path(run).read_bytes()
    path(run).write_bytes(whole[:-cut])
    file.write([row(3)])
    seen = [r.step for r in read_rows(run, 1)]
    assert seen == ([1, 2, 3] if cut == 1 else [1, 3])


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"nonsense",
        b"[1]",
        b"3",
        b"\xff\xfe",
        b"[" * 100_000,
        json.dumps({"step": "x"}).encode(),
        json.dumps({"step": 7}).encode(),
        b'{"step":Infinity,"samples":1,"updates":1,"skipped":0,"seconds":1,"at":1}',
        b'{"step":7,"samples":1,"updates":1,"skipped":0,"seconds":1,"at":1,"batch":3}',
    ],
    ids=lambda b: repr(b[:20]),
)
def test_a_row_that_cannot_be_understood_is_left_out(run: RunDir, file: StepFile, bad: bytes) -> None:
    file.write([row(1)])
    file.close()
    path(run).write_bytes(path(run).read_bytes() + bad + b"\n")
    file.write([row(2)])
    assert [r.step for r in read_rows(run, 1)] == [1, 2]


def test_a_loss_that_is_no_number_is_none(run: RunDir) -> None:
    raw = {"step": 1, "samples": 8, "updates": 1, "skipped": 0, "seconds": 1, "at": 1, "loss": True, "lr": "x"}
    path(run).write_text(json.dumps(raw) + "\n")
    (seen,) = read_rows(run, 1)
    assert (seen.loss, seen.lr, seen.batch) == (None, None, None)


def lossy(step: int, attempt: int, loss: float) -> StepRow:
    return row(step, attempt, loss=loss)


def test_a_replay_is_laid_over_the_latest_word_of_accepted_attempts(run: RunDir, file: StepFile) -> None:
    """Attempt 3 starts from 40. Steps 41 to 43 are known of attempt 2, 44 and 45 of attempt 1 alone."""
    scene = training()
    for _ in range(2):
        scene.die(1)
        scene.settle()
        if len(scene.history.attempts) == 2:
            back(scene)
    assert [a.number for a in scene.history.attempts] == [1, 2, 3]
    file.write([lossy(s, 1, 1.0) for s in range(38, 46)] + [lossy(s, 2, 2.0) for s in range(41, 44)])
    rows = reference(RunFiles(run), scene.history)
    assert {s: r.loss for s, r in rows.items()} == {41: 2.0, 42: 2.0, 43: 2.0, 44: 1.0, 45: 1.0}


def test_an_attempt_that_failed_acceptance_or_probation_is_no_reference(run: RunDir, file: StepFile) -> None:
    scene = training()
    scene.die(1)
    scene.settle()
    file.write([lossy(45, 1, 1.0)])
    assert set(reference(RunFiles(run), scene.history)) == {45}
    doubt = replace(scene.history.incidents[0], diagnosis=None)
    for fault in (FaultClass.ACCEPTANCE, FaultClass.PROBATION):
        bad = replace(doubt, trouble=replace(doubt.trouble, fault=fault))
        assert reference(RunFiles(run), replace(scene.history, incidents=(bad,))) == {}
    never = replace(scene.history.attempts[0], accepted_at=None)
    assert reference(RunFiles(run), replace(scene.history, attempts=(never, scene.history.attempts[1]))) == {}
    assert reference(RunFiles(run), History()) == {}


def test_where_no_attempt_is_to_be_trusted_the_control_is(run: RunDir, file: StepFile) -> None:
    scene = training()
    scene.die(1)
    scene.settle()
    file.write([lossy(s, 0, 9.0) for s in range(39, 47)])
    file.write([lossy(s, 1, 1.0) for s in range(41, 45)])
    rows = reference(RunFiles(run), scene.history)
    assert {s: r.loss for s, r in rows.items()} == {41: 1.0, 42: 1.0, 43: 1.0, 44: 1.0, 45: 9.0, 46: 9.0}


def test_behind_samples_that_are_newly_left_out_nothing_is_compared(run: RunDir, file: StepFile) -> None:
    """Step 43 reads samples 336 to 343. What another attempt left out too has changed nothing."""
    scene = training()
    scene.die(1)
    scene.settle()
    first, newest = scene.history.attempts
    file.write([row(s, 1) for s in range(41, 46)])
    skipping = replace(newest, skip_samples=((340, 344),))
    for before, steps in ((first, {41, 42}), (replace(first, skip_samples=((340, 344),)), {41, 42, 43, 44, 45})):
        assert set(reference(RunFiles(run), replace(scene.history, attempts=(before, skipping)))) == steps
    file.write([replace(row(46, 1), batch=None)])  # what it read is not known
    far = replace(newest, skip_samples=((900, 908),))
    assert set(reference(RunFiles(run), replace(scene.history, attempts=(first, far)))) == {41, 42, 43, 44, 45}
