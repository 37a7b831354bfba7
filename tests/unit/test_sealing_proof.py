"""The proof of sealing, in short: each operation killed at some steps, a small crowd, and each careless one found out."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from supervisor.bench.proofs import sealers, sealing
from supervisor.bench.proofs.careless_seals import PLANTED
from supervisor.bench.proofs.work import Work

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("sealing-proof")]
CASES = ("seal", "retention", "copy into the archive", "retention of the archive", "restore from the archive")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    return Work("sealing", str(tmp_path_factory.mktemp("proof")), tell=lambda _: None)


@pytest.fixture(scope="module")
def cases(work: Work) -> dict[str, sealing.Case]:
    return {case.name: case for case in sealing.cases(work)}


def test_no_operation_is_left_out(cases: dict[str, sealing.Case]) -> None:
    assert tuple(cases) == CASES


@pytest.mark.parametrize("name", CASES)
def test_an_operation_killed_at_some_of_its_steps(name: str, work: Work, cases: dict[str, sealing.Case]) -> None:
    sealing.every_step(work, cases[name], random.Random(1), stride=9)
    assert work.measured[name]["steps"] > 10
    assert work.measured[name]["deaths"] >= 2
    assert work.ok, work.checks


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_a_careless_one_is_found_out(name: str, work: Work, cases: dict[str, sealing.Case]) -> None:
    sealing.planted(work, name, PLANTED[name])
    assert work.ok, work.checks


def test_a_careful_one_is_not(work: Work, cases: dict[str, sealing.Case]) -> None:
    short = Work("sealing", work.folder, tell=lambda _: None)
    sealing.planted(short, "retention", sealing.prune)
    assert not short.ok


def test_a_small_crowd(tmp_path: Path) -> None:
    work = Work("sealing", str(tmp_path), tell=lambda _: None)
    sealing.crowd(work, 5, 4)
    assert work.ok, work.checks
    assert work.measured["crowd"]["deaths"] >= 4


@pytest.mark.parametrize("fault", ["bytes", "gone", "manifest", "rubbish", "unknown", "torn", "archive"])
def test_the_judge_sees_each_kind_of_fault(fault: str, tmp_path: Path, cases: dict[str, sealing.Case]) -> None:
    scene = cases["retention of the archive"].scene.copy_to(str(tmp_path / "scene"))
    assert sealers.judge(scene) == []
    tree, save = scene.tree, sealers.SaveId(1, 30)
    match fault:
        case "bytes":
            Path(tree.save(save), "__0_0.distcp").write_bytes(b"x")
        case "gone":
            shutil.rmtree(tree.save(save))
        case "manifest":
            Path(tree.mark(save, "manifest.json")).unlink()
        case "rubbish":
            Path(tree.mark(save, "manifest.json")).write_bytes(b"{}")
        case "unknown":
            Path(tree.completed).write_text('{"schema":1,"generation":9,"completed":["a0001-i0000070"]}')
        case "torn":
            Path(tree.completed).write_text('{"schema":1,"gen')
        case "archive":
            copy = Path(scene.place, sealers.FOLDER, sealers.RUN, "saves", str(save), "__1_0.distcp")
            copy.write_bytes(bytes(copy.stat().st_size))
    assert len(sealers.judge(scene)) == 1
