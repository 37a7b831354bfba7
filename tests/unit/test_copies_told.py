"""What a person is told of the archive: what comes back, what was copied and read last, and what can't be seen."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

from builders import AUTO, Scene, back, save, save_id, show, training
from test_archiving import with_archive

from policies.decisions import Recover, Restores
from policies.facts import UNKNOWN, CheckpointPhase, Copied, View
from policies.history import History, Intent
from supervisor import actions
from supervisor.telling.copies import copies_lines, known_saves, restore_text
from supervisor.telling.incident_facts import Known
from supervisor.telling.incident_story import incident_story
from supervisor.telling.story import status_text

KNOWN = Known(zone=UTC)


def lines(history: History, view: View, now: float = 10_000.0) -> list[str]:
    return copies_lines(history, view, now, KNOWN)


def test_without_an_archive_nothing_is_said_of_it() -> None:
    assert lines(History(), View(checkpoints=(save(40),))) == []
    assert lines(History(), View()) == []


def test_the_last_copy_and_its_age() -> None:
    view = View(has_archive=True, archive=(save(20, location="archive"), save(40, location="archive")))
    (text,) = lines(History(archived=Copied(save_id(40), 10_000 - 7200.0)), view)
    assert text == f"Archive: last copy {save_id(40)}, 2 h ago; 2 copies."
    (by_hand,) = lines(History(archived=Copied(save_id(20), 0.0)), view)
    assert by_hand == f"Archive: last copy {save_id(40)}, completed 2 h 46 min ago; 2 copies."
    (none,) = lines(History(), replace(view, archive=()))
    assert none == "Archive: no copy yet."


def test_what_is_being_copied_and_why_it_failed() -> None:
    action = actions.Archive(save_id(40))
    history = History(intents={actions.key(action): Intent(actions.key(action), 9000.0, 3, 1, action)})
    view = View(has_archive=True, failures=(("archive:" + save_id(40), "No space left\x1b[31m on device"),))
    (text,) = lines(history, view)
    assert text.startswith(f"Archive: no copy yet. Copying {save_id(40)} since ")
    assert text.endswith("The last try: No space left on device.")


def test_an_archive_that_cannot_be_read_is_unknown() -> None:
    view = View(has_archive=True, archive=UNKNOWN, archive_as_of=9_400.0, archive_why="no answer for 40 s")
    assert lines(History(), view) == ["Archive: unknown; it can't be read (no answer for 40 s); last seen 10 min ago."]


def test_the_last_reading() -> None:
    view = View(checkpoints=(save(20, read_at=4_000.0), save(40, read_at=6_400.0), save(60)))
    assert lines(History(), view) == [f"Read again in full: {save_id(40)}, 1 h ago."]


def test_a_restore_that_is_under_way_stands_in_the_status() -> None:
    scene = restoring()
    text = status_text(scene.history, scene.view, scene.now, KNOWN)
    assert f"Restoring {save_id(20)} from the archive (7 TB, no copy has shown yet how long that takes), since " in text
    moving = replace(scene.view, moved=((f"restoring {save_id(20)} from the archive", 45, 100),))
    assert ", 45% so far." in status_text(scene.history, moving, scene.now, KNOWN)
    slow = replace(scene.view, delays=((f"restore:{save_id(20)}", "no answer from the bucket"),))
    assert "The last try: no answer from the bucket." in status_text(scene.history, slow, scene.now, KNOWN)


def restoring() -> Scene:
    scene = training(AUTO)
    with_archive(scene, save(20, location="archive", bytes=7 * 10**12))
    scene.view = replace(scene.view, checkpoints=())
    scene.obeys = lambda a: a.kind != "restore"
    scene.die(1)
    scene.settle()
    assert isinstance(scene.history.decision, Recover)
    return scene


def test_the_story_of_the_incident_says_where_its_checkpoint_came_from() -> None:
    scene = restoring()
    assert "Restored from the archive" not in incident_story(scene.history, 1, KNOWN)
    scene.now += 5640
    scene.view = show(scene.view, actions.Restore(save_id(20)))
    scene.obeys = lambda _: True
    scene.settle()
    back(scene)
    told = incident_story(scene.history, 1, KNOWN)
    assert f"Restored from the archive: {save_id(20)}. It took 1 h 34 min." in told


def test_how_long_it_takes() -> None:
    assert restore_text(Restores(7 * 10**12, 5640.0)) == "7 TB, about 1 h 34 min at the pace of the last copy or drill"
    assert restore_text(Restores(10**9)) == "1 GB, no copy has shown yet how long that takes"


def test_a_page_names_the_copy_where_the_save_in_the_store_is_of_no_use() -> None:
    broken, copy = save(40, phase=CheckpointPhase.BROKEN), save(40, location="archive")
    view = View(checkpoints=(save(20), broken), archive=(copy, save(20, location="archive")))
    assert known_saves(view) == (save(20), copy, broken)
    assert known_saves(View(archive=UNKNOWN)) == ()
