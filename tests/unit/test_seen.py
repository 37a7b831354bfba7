"""What is frozen of an incident can be written down, and says what was to be seen."""

from __future__ import annotations

import json
from dataclasses import replace

from builders import end, finding, training

from policies.facts import UNKNOWN, CaptureView, RankStack
from supervisor.attempt_files import RunFiles
from supervisor.rundir import RunDir
from supervisor.telling.seen import seen_of


def test_all_of_it_is_json() -> None:
    scene = training()
    scene.change(exits=(end(1, "n1", at=10, signal=9),))
    stack = RankStack(2, "n2", "communication", "wait (c10d.py:1)")
    scene.view = replace(
        scene.view, findings=(finding("oom", "root", 1, 9.0),), capture=CaptureView(1, True, 3, 0, (stack,))
    )
    seen = json.loads(json.dumps(seen_of(scene.view, 12.0)))
    assert [node["name"] for node in seen["nodes"]] == ["n0", "n1", "n2", "n3"]
    assert seen["attempt"]["exits"][0]["signal"] == 9
    assert seen["attempt"]["last_step"]["step"] == 45
    assert (seen["findings"][0]["kind"], seen["stacks"][0]["top"]) == ("oom", "wait (c10d.py:1)")


def test_what_could_not_be_read_is_null() -> None:
    seen = seen_of(replace(training().view, nodes=UNKNOWN, attempt=None), 1.0)
    assert (seen["nodes"], seen["attempt"]) == (None, None)


def test_a_disk_that_is_full_loses_the_file_and_nothing_else(tmp_path) -> None:
    run = RunDir(str(tmp_path))
    RunFiles(run).keep_seen(1, {"schema": 1})
    assert json.loads((tmp_path / "incidents" / "0001" / "seen.json").read_text()) == {"schema": 1}
    (tmp_path / "incidents" / "0002").write_text("no folder")
    RunFiles(run).keep_seen(2, {"schema": 1})
