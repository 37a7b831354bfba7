"""Every window in which Megatron's save can die (A to E, and the torn tracker), by real kills of real writers.

Each time: what `relight verify` says of the directory that is left, and on which rung the ladder ends under relight.
In the whole loop: here B; a node that dies in the middle of a save: `relight bench prove demo`.
"""

import os
import shutil
import signal
import time
import warnings

import pytest

pytest.importorskip("torch")
from policies.facts import CheckpointPhase
from policies.ladder import climb
from supervisor.bench import megatron_nursery as windows
from supervisor.bench import megatron_order
from supervisor.bench.proofs import windows as proof
from supervisor.bench.proofs.runs import SMALL, undisturbed
from supervisor.bench.proofs.work import Work
from supervisor.checkpoints.manifest import FileEntry
from supervisor.checkpoints.reading.findings import Verdict
from supervisor.checkpoints.reading.listed import Listed
from supervisor.checkpoints.reading.verifying import Options, verify
from supervisor.checkpoints.store import PosixStore

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("crash-windows")]

WORLD = 2
KILLED = [-signal.SIGKILL] * WORLD
OLD, NEW = "a0001-i0000010", "a0001-i0000020"
AGAIN = "a0002-i0000020"
"""The save of step 20 that attempt 2 takes, having gone back to step 10."""
MOMENTS = ("exp_avg", "exp_avg_sq")
MINUTE_NS = 60 * 10**9


@pytest.fixture(scope="module")
def nursery():
    nursery = megatron_order.start(WORLD)
    yield nursery
    nursery.close()


@pytest.fixture(scope="module")
def whole(nursery, tmp_path_factory):
    """A directory with whole saves of steps 10 and 20, a minute old."""
    folder = tmp_path_factory.mktemp("whole")
    for step in (10, 20):
        nursery.whole(folder=str(folder), step=step, word="")
    for path in folder.rglob("*"):
        then = path.stat().st_mtime_ns - MINUTE_NS
        os.utime(path, ns=(then, then))
    return folder


@pytest.fixture
def bare(whole, tmp_path):
    """The same, as somebody has it who trains without relight."""
    return shutil.copytree(whole, tmp_path / "bare")


@pytest.fixture
def store(whole, tmp_path):
    """A run whose attempt 1 has saved step 10, and relight has sealed it."""
    store = PosixStore(str(tmp_path / "store"), WORLD, time.time, settle_s=0.0)
    store.create()
    shutil.copytree(whole / "iter_0000010", os.path.join(store.save_dir(1), "iter_0000010"))
    assert store.seal(OLD).phase is CheckpointPhase.COMPLETED
    return store


def rung(store):
    found = climb(store.scan())
    assert found.checkpoint is not None
    return found


def codes(report):
    return {finding.code for finding in report.findings}


def look(path, manifest=None):
    return verify(str(path), Options(manifest, lag_s=0.0, threads=1))


def manifest_of(report):
    files = {name: FileEntry(size=stamp.size, xxh3=report.sums[name]) for name, stamp in report.look.files.items()}
    return Listed(files, report.iteration, f"a0001-i{report.iteration:07d}")


# --- a first save of a step dies -----------------------------------------------------------------------------------------


def names(store, attempt=1, step=20):
    return set(os.listdir(os.path.join(store.save_dir(attempt), f"iter_{step:07d}")))


@pytest.mark.parametrize(
    ("window", "left"),
    [
        pytest.param(windows.SHARDS, {"__0_0.distcp", "__1_0.distcp"}, id="A"),
        pytest.param(windows.UNBEGUN, {"__0_0.distcp"}, id="A, one rank not begun"),
        pytest.param(windows.METADATA, {"__0_0.distcp", "__1_0.distcp"}, id="B"),
        pytest.param(windows.RENAME, {"__0_0.distcp", "__1_0.distcp", ".metadata.tmp"}, id="B, not renamed"),
    ],
)
def test_before_metadata_the_older_one_is_taken_and_the_save_is_given_up(nursery, store, window, left):
    held = nursery.held_at(window, folder=store.save_dir(1), step=20, word="")
    assert store.seal(NEW).phase is CheckpointPhase.IN_PROGRESS
    assert held.kill() == KILLED
    assert names(store) == left
    assert store.seal(NEW).phase is CheckpointPhase.IN_PROGRESS
    assert look(os.path.join(store.save_dir(1), "iter_0000020")).verdict is Verdict.NOT_YET
    found = rung(store)
    assert (found.checkpoint.id, found.wait) == (OLD, False)
    assert [(one.id, one.why[:19]) for one in found.rejected] == [(NEW, "still being written")]
    store.abandon(NEW, "its attempt was stopped before the framework had finished it")
    assert store.seal(NEW).phase is CheckpointPhase.ABANDONED
    assert rung(store).checkpoint.id == OLD
    assert_loads(store, 2, OLD)


@pytest.mark.parametrize("torn", [False, True])
def test_before_metadata_json_the_save_is_taken_and_repaired_in_the_view(nursery, store, torn):
    held = nursery.held_at(windows.JSON, folder=store.save_dir(1), step=20, word="")
    assert held.kill() == KILLED
    assert names(store) == {"__0_0.distcp", "__1_0.distcp", ".metadata"}
    data = os.path.join(store.save_dir(1), "iter_0000020")
    if torn:  # the kill came in the middle of its 63 bytes
        with open(os.path.join(data, "metadata.json"), "w", encoding="ascii") as file:
            file.write(megatron_order.METADATA_JSON[:30])
    report = look(data)
    assert (report.verdict, report.repairable) == (Verdict.BROKEN, True)
    before = {name: os.stat(os.path.join(data, name)).st_mtime_ns for name in os.listdir(data)}
    state = store.seal(NEW)
    assert (state.phase, rung(store).checkpoint.id) == (CheckpointPhase.COMPLETED, NEW)
    view = assert_loads(store, 2, NEW)
    with open(os.path.join(view, "iter_0000020", "metadata.json"), encoding="ascii") as file:
        assert file.read() == megatron_order.METADATA_JSON
    assert {name: os.stat(os.path.join(data, name)).st_mtime_ns for name in os.listdir(data)} == before


def test_a_torn_tracker_says_nothing_about_the_save(nursery, store, bare):
    held = nursery.held_at(windows.TORN, folder=store.save_dir(1), step=20, word="")
    assert held.kill() == KILLED
    assert os.path.getsize(os.path.join(store.save_dir(1), windows.TRACKER)) == 0
    assert store.seal(NEW).phase is CheckpointPhase.COMPLETED
    assert rung(store).checkpoint.id == NEW
    view = assert_loads(store, 2, NEW)
    with open(os.path.join(view, windows.TRACKER), encoding="ascii") as file:
        assert file.read() == "20"
    held = nursery.held_at(windows.TORN, folder=str(bare), step=30, word="")
    assert held.kill() == KILLED
    report = look(bare)
    assert (report.verdict, report.iteration) == (Verdict.COMPLETE, 30)
    assert "TRACKER" in codes(report)


def assert_loads(store, attempt, checkpoint):
    """relight's own view leads to that save and no other, and torch loads it."""
    import torch
    import torch.distributed.checkpoint as dcp

    view = store.make_view(attempt, checkpoint)
    assert store.view_targets() == {attempt: checkpoint}
    step = int(checkpoint[-7:])
    reader = dcp.FileSystemReader(os.path.join(view, f"iter_{step:07d}"))
    state = {
        f"{kind}weight": torch.zeros(64 * WORLD, 32)
        for kind in ("decoder.", *(f"optimizer.state.{m}." for m in MOMENTS))
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        dcp.load(state, storage_reader=reader, no_dist=True)
    assert all((tensor > 0).any(dim=1).all() for tensor in state.values())
    return view


# --- the same step is saved again, after a rollback ----------------------------------------------------------------------


AGAIN_AT = [
    pytest.param(windows.SHARDS, id="D"),
    pytest.param(windows.UNBEGUN, id="D2"),
    pytest.param(windows.METADATA, id="D, all shards new"),
    pytest.param(windows.RENAME, id="E"),
    pytest.param(windows.JSON, id="C, over an old one"),
]


@pytest.mark.parametrize("window", AGAIN_AT)
def test_under_relight_a_second_save_of_a_step_can_not_hurt_the_first(nursery, store, window):
    nursery.whole(folder=store.save_dir(1), step=20, word="")
    assert store.seal(NEW).phase is CheckpointPhase.COMPLETED
    held = nursery.held_at(window, folder=store.save_dir(2), step=20, word="again")
    assert held.kill() == KILLED
    again = store.seal(AGAIN)
    if window == windows.JSON:  # whole, but for what is repaired in the view: the newer of the two
        assert (again.phase, rung(store).checkpoint.id) == (CheckpointPhase.COMPLETED, AGAIN)
    else:
        assert again.phase is CheckpointPhase.IN_PROGRESS
        store.abandon(AGAIN, "its attempt was stopped before the framework had finished it")
        assert rung(store).checkpoint.id == NEW
    assert [s.phase for s in store.scan() if s.id == NEW] == [CheckpointPhase.COMPLETED]
    assert_loads(store, 3, NEW)


@pytest.mark.parametrize("window", AGAIN_AT)
def test_without_relight_what_is_left_of_the_first_is_never_called_complete(nursery, bare, window):
    first = look(bare / "iter_0000020")
    assert first.verdict is Verdict.COMPLETE
    held = nursery.held_at(window, folder=str(bare), step=20, word="again")
    assert held.kill() == KILLED
    assert (bare / windows.TRACKER).read_text() == "20", "Megatron would load it"
    with_manifest = look(bare / "iter_0000020", manifest_of(first))
    assert with_manifest.verdict is not Verdict.COMPLETE
    report = look(bare)
    assert report.iteration == 20
    if window in {windows.SHARDS, windows.RENAME}:
        assert report.verdict is (Verdict.BROKEN if window == windows.SHARDS else Verdict.NOT_YET), report.findings
    elif window == windows.JSON:  # the new one is whole; the old metadata.json says the same as a new one would
        assert report.verdict is Verdict.COMPLETE
    else:  # sizes and sums of records are right: only a manifest knows, and the stamps arouse suspicion
        assert codes(with_manifest) >= {"SUM"}
        assert report.verdict is Verdict.COMPLETE
        assert codes(report) >= {"NEWER_SHARD", "UNPROVED"}


def test_a_kill_that_never_came_is_noticed(nursery, store):
    """The ends above are those of the windows: with no window the ranks end well, and the new save is taken."""
    nursery.whole(folder=store.save_dir(1), step=20, word="")
    assert store.seal(NEW).phase is CheckpointPhase.COMPLETED
    assert rung(store).checkpoint.id == NEW
    with pytest.raises(RuntimeError, match="was not said, but"):
        nursery.begin(folder=store.save_dir(1), step=30, word="", window="").until("rank 0 at metadata")


@pytest.mark.slow
def test_in_the_whole_loop_the_coordinator_dies_before_metadata(tmp_path):
    work = Work("windows", str(tmp_path))
    proof.in_the_loop(work, undisturbed(work, SMALL))
    assert work.ok, work.checks
