"""`relight bench prove` without real runs: what is done again, what is not, and what each helper calls a failure."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from policies.history import Attempt, Books, History
from supervisor.bench import plain_script, prove
from supervisor.bench.proofs import layout
from supervisor.bench.proofs.randomly import KINDS, LAST, PLANNED, draw
from supervisor.bench.proofs.runs import SMALL, launched_once, ledger_holds
from supervisor.bench.proofs.work import SkippedError, Work
from supervisor.bench.real_run import RealRun
from supervisor.errors import NOT_YET_EXIT, UserError
from supervisor.evidence.iterations import read_iteration

Body = Callable[[Work], None]


@pytest.fixture
def proof_of() -> Iterator[Callable[..., prove.Proof]]:
    """Proofs whose module is made here."""
    made = []

    def make(name: str, body: Body, issue: str = "core") -> prove.Proof:
        module = types.ModuleType(f"relight_test_proof_{name}")
        module.prove = body  # type: ignore[attr-defined]
        sys.modules[module.__name__] = module
        made.append(module.__name__)
        return prove.Proof(name, issue, module.__name__, name, 1)

    yield make
    for name in made:
        del sys.modules[name]


def holds(work: Work) -> None:
    work.check("it holds", ok=True)


def fails(work: Work) -> None:
    work.check("it holds", ok=True)
    work.check("this does not", ok=False)


def test_each_result_is_written_and_the_worst_counts(tmp_path: Path, proof_of: Callable[..., prove.Proof]) -> None:
    def breaks(work: Work) -> None:
        raise UserError("the run has not ended")

    def crashes(work: Work) -> None:
        raise KeyError("x")

    bodies: dict[str, Body] = {
        "good": holds,
        "bad": fails,
        "broken": breaks,
        "crashed": crashes,
        "empty": lambda _: None,
    }
    proofs = [proof_of(name, body) for name, body in bodies.items()]
    assert prove.main((), str(tmp_path), fresh=False, seed=1, proofs=proofs) == 1
    results = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in bodies}
    assert [name for name, result in results.items() if result["ok"]] == ["good"]
    assert results["broken"]["checks"] == {"the run has not ended": False}
    assert results["crashed"]["checks"] == {"KeyError: 'x'": False}
    assert set(results["good"]) >= {"schema", "name", "commit", "ok", "measured", "at", "seconds"}
    assert prove.main(("good",), str(tmp_path), fresh=False, seed=1, proofs=proofs) == 0


def test_what_is_done_for_this_commit_is_not_done_again(tmp_path: Path, proof_of: Callable[..., prove.Proof]) -> None:
    done: list[int] = []

    def counted(work: Work) -> None:
        done.append(1)
        holds(work)

    proofs = [proof_of("counted", counted)]

    def again(**more: object) -> int:
        given = {"fresh": False, "seed": 1, "commit": "abc", **more}
        assert prove.main((), str(tmp_path), proofs=proofs, **given) == 0  # type: ignore[arg-type]
        return len(done)

    assert [again(), again()] == [1, 1]
    assert again(seed=2) == 2
    assert again(seed=2, fresh=True) == 3
    assert again(seed=2, commit="def") == 4
    assert [again(commit=None), again(commit=None)] == [5, 6]  # what was measured can't be named
    (tmp_path / "counted.json").write_text("{")
    assert again(commit="def") == 7


def test_a_failed_one_is_done_again(tmp_path: Path, proof_of: Callable[..., prove.Proof]) -> None:
    outcome = iter([False, True])
    proofs = [proof_of("flaky", lambda work: work.check("it holds", ok=next(outcome)) and None)]
    codes = [prove.main((), str(tmp_path), fresh=False, seed=1, proofs=proofs, commit="abc") for _ in range(3)]
    assert codes == [1, 0, 0]


def test_after_an_hour_nothing_is_begun(tmp_path: Path, proof_of: Callable[..., prove.Proof]) -> None:
    times = iter([0.0, 0.0, prove.HOUR_S + 1])
    proofs = [proof_of("first", holds), proof_of("second", holds)]
    code = prove.main((), str(tmp_path), fresh=True, seed=1, proofs=proofs, clock=lambda: next(times))
    assert code == NOT_YET_EXIT
    assert (tmp_path / "first.json").exists()
    assert not (tmp_path / "second.json").exists()


def test_names_and_issues_choose(proof_of: Callable[..., prove.Proof]) -> None:
    proofs = [proof_of("one", holds, "a"), proof_of("two", holds, "b"), proof_of("three", holds, "a")]
    assert [p.name for p in prove.choose(("a", "two"), proofs)] == ["one", "two", "three"]
    assert [p.name for p in prove.choose(("three",), proofs)] == ["three"]
    assert len(prove.choose((), proofs)) == 3
    with pytest.raises(UserError, match="four: no such proof"):
        prove.choose(("four",), proofs)


def test_said_twice_it_must_hold_twice(tmp_path: Path) -> None:
    work = Work("twice", str(tmp_path))
    assert not work.ok  # nothing was checked yet
    work.check("same", ok=False)
    work.check("same", ok=True)
    assert not work.ok


def test_the_reference_layout_holds(tmp_path: Path) -> None:
    work = Work("map", str(tmp_path))
    layout.prove(work)
    assert work.ok, work.checks
    assert len(work.checks) == 5


def test_sixteen_seeds_have_every_kind_twice() -> None:
    faults = [draw(seed) for seed in range(1000, 1016)]
    assert sorted(f.kind for f in faults) == sorted([*KINDS, *KINDS])
    assert faults == [draw(seed) for seed in range(1000, 1016)]
    assert all((1 if f.kind in PLANNED else 0) <= f.step <= LAST for f in faults)
    assert len({(f.rank, f.step) for f in faults}) > 8


def attempts(*numbers: int) -> History:
    return History(attempts=tuple(Attempt(n, ("n0",), None, 0, 0.0, None) for n in numbers))


@pytest.mark.parametrize(
    ("orders", "loads", "good"),
    [
        (["bench.a0001.e1", "bench.a0002.e1", "bench.agent.n000.e1.1"], 1, True),
        (["bench.a0001.e1", "bench.a0002.e1", "bench.a0002.e2"], 1, False),
        (["bench.a0001.e1", "bench.a0002.e1", "bench.a0003.e1"], 1, False),
        (["bench.a0001.e1", "bench.a0002.e1"], 2, False),
    ],
)
def test_launched_twice_is_seen(tmp_path: Path, orders: list[str], loads: int, good: bool) -> None:
    run = RealRun(str(tmp_path), SMALL)
    folder = Path(run.run.path("nodes", "orders"))
    folder.mkdir(parents=True)
    for name in orders:
        (folder / f"{name}.json").write_text("{}")
    log = Path(run.run.attempt(2, "logs", "rank_00001.log"))
    log.parent.mkdir(parents=True)
    log.write_text("loaded nothing, step 0\n" * loads)
    assert launched_once(run, attempts(1, 2)) is good


def test_an_attempt_twice_in_the_journal_is_seen(tmp_path: Path) -> None:
    run = RealRun(str(tmp_path), SMALL)
    Path(run.run.path("nodes", "orders")).mkdir(parents=True)
    assert not launched_once(run, attempts(1, 2, 2))


@pytest.mark.parametrize(
    ("books", "good"),
    [
        (Books(computed=29, rolled_back=5), True),
        (Books(computed=28, rolled_back=5), False),
        (Books(computed=28, rolled_back=5, skipped=1), False),
    ],
)
def test_a_ledger_that_does_not_add_up_is_seen(books: Books, good: bool) -> None:
    assert ledger_holds(History(books=books), 24) is good


def test_the_plain_script_speaks_as_megatron_does() -> None:
    told = read_iteration(plain_script.line(7, 40, 0.15))
    assert told is not None
    assert (told.step, told.samples, told.skipped) == (7, 56, 0)
    assert told.loss == pytest.approx(2 + 8 / 7, rel=1e-6)
    assert told.seconds == pytest.approx(0.15)


def test_what_can_not_be_done_here_is_skipped_and_said(tmp_path, capsys, proof_of) -> None:
    def missing(_: Work) -> None:
        raise SkippedError("no logs here")

    proofs = [proof_of("absent", missing), proof_of("good", lambda work: work.check("it holds", ok=True) and None)]
    assert prove.main([], str(tmp_path), fresh=False, seed=1, proofs=proofs) == 0
    assert "1 of 2 hold; skipped: absent" in capsys.readouterr().out
    assert json.loads((tmp_path / "absent.json").read_text())["ok"] is False
