"""Real saves of Megatron Core 0.19.2 and torch DCP, good and broken on purpose, go through a seal and a view."""

import os
import shutil

import pytest
from test_store_good import Now
from test_verify_samples import ARCHIVE, VERDICTS, samples

from policies.facts import CheckpointPhase
from supervisor.checkpoints.store import PosixStore
from supervisor.errors import NotRestorable

pytestmark = pytest.mark.skipif(not ARCHIVE.exists(), reason="the samples lie beside the repository")
__all__ = ["samples"]

OTHERWISE = {
    # Without a whole .metadata the framework has not finished; who is fenced gives it up.
    "14_no_dot_metadata": CheckpointPhase.IN_PROGRESS,
    "15_truncated_dot_metadata": CheckpointPhase.IN_PROGRESS,
    "16_zero_dot_metadata": CheckpointPhase.IN_PROGRESS,
    "25_metadata_json_zero": CheckpointPhase.COMPLETED,
}
PHASES = {
    "complete": CheckpointPhase.COMPLETED,
    "broken": CheckpointPhase.BROKEN,
    "not_yet": CheckpointPhase.NOT_YET,
}


@pytest.mark.parametrize("name", sorted(VERDICTS))
def test_every_sample_is_sealed_as_what_it_is(samples, tmp_path, name):
    store = PosixStore(str(tmp_path / "c"), 8, Now())
    store.create()
    source = next((samples / name).glob("iter_*"), samples / name)
    step = int(source.name.removeprefix("iter_")) if source.name.startswith("iter_") else 10
    checkpoint = f"a0001-i{step:07d}"
    path = os.path.join(store.save_dir(1), f"iter_{step:07d}")
    closed = [file.name for file in source.iterdir() if not file.is_symlink() and not file.stat().st_mode & 0o400]
    for file in closed:
        os.chmod(source / file, 0o600)  # whoever is not root could not copy it
    shutil.copytree(source, path, symlinks=True)
    for file in closed:
        os.chmod(source / file, 0)
        os.chmod(os.path.join(path, file), 0)
    state = store.seal(checkpoint)
    assert state.phase is OTHERWISE.get(name, PHASES[VERDICTS[name][0]]), state.reasons
    if state.phase is not CheckpointPhase.COMPLETED:
        assert state.reasons
        with pytest.raises(NotRestorable):
            store.make_view(2, checkpoint)
        return
    view = store.make_view(2, checkpoint)
    assert store.view_targets() == {2: checkpoint}
    repaired = name == "25_metadata_json_zero"
    assert os.path.islink(os.path.join(view, f"iter_{step:07d}")) != repaired
    assert bool(state.reasons) == repaired
