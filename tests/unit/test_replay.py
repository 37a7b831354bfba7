"""Every decision of a journal made again, from the journal alone."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from builders import APPROVE, AUTO, OBSERVE, Scene, back, training
from click.testing import CliRunner

from policies.decisions import Contain, Recover
from policies.rules import Rules, as_text
from supervisor.commands.replay import command
from supervisor.journal.entries import Approved, Decided, Looked, RulesSet, RunStarted, Stamped
from supervisor.journal.journal import Journal
from supervisor.replay import NotReplayableError, as_json, replay


def with_rules(scene: Scene) -> list[Stamped]:
    """What the loop writes at its start, and a scene leaves out."""
    at = next(i for i, s in enumerate(scene.stamped) if isinstance(s.entry, RunStarted))
    rules = Stamped(0, 1, scene.stamped[0].at, RulesSet(as_text(scene.rules)))
    return [*scene.stamped[: at + 1], rules, *scene.stamped[at + 1 :]]


def hurt(rules: Rules = AUTO) -> Scene:
    """n1 is lost and replaced; a rank dies; a person halts nothing."""
    scene = training(rules)
    scene.lose("n1")
    scene.settle()
    if scene.history.mode == "approve":
        scene.say(Approved(scene.history.decision_digest or "", "li"))
        scene.settle()
    if scene.history.mode != "observe":
        back(scene)
        scene.die(2)
        scene.settle()
    return scene


@pytest.mark.parametrize("rules", [AUTO, APPROVE, OBSERVE], ids=["auto", "approve", "observe"])
def test_the_same_journal_gives_the_same_decisions(rules: Rules) -> None:
    scene = hurt(rules)
    decided = [s.entry.decision for s in scene.stamped if isinstance(s.entry, Decided)]
    again = list(replay(with_rules(scene)))
    assert [one.was for one in again] == decided
    assert [one.now for one in again] == decided
    assert all(one.same for one in again)
    assert {type(d) for d in decided} >= {Contain, Recover}


def test_another_profile_shows_what_would_differ() -> None:
    """In approve mode the same plan asks; a class that is not cleared asks too; the first start asks nobody."""
    journal = with_rules(hurt())
    done = [(one.was_done, one.now_done) for one in replay(journal, APPROVE) if isinstance(one.was, Recover)]
    assert done == [("carried out",) * 2, ("carried out", "asks a person"), ("carried out", "asks a person")]
    watched = [one.now_done for one in replay(journal, OBSERVE) if isinstance(one.was, Recover)]
    assert watched[1:] == ["not carried out"] * 2
    strict = AUTO.model_copy(update={"budget": AUTO.budget.model_copy(update={"infrastructure": 0})})
    halts = [one for one in replay(journal, strict) if one.differs == ("kind",)]
    assert halts
    assert json.loads(json.dumps(as_json(halts[0])))["now"]["decision"] == "halt (infrastructure-budget-spent)"


def test_a_decision_that_is_not_what_was_seen_is_found() -> None:
    """Planted: the journal says that another node was barred than what it was decided from."""
    journal = with_rules(hurt())
    at = next(
        i
        for i, s in enumerate(journal)
        if isinstance(s.entry, Decided) and isinstance(s.entry.decision, Recover) and s.entry.decision.bars
    )
    entry = journal[at].entry
    assert isinstance(entry, Decided)
    assert isinstance(entry.decision, Recover)
    wrong = replace(entry, decision=replace(entry.decision, bars=("n0",)))
    journal[at] = replace(journal[at], entry=wrong)
    found = [one for one in replay(journal) if not one.same]
    assert [one.differs for one in found][:1] == [("bars",)]


def test_what_cannot_be_made_again_is_said() -> None:
    whole = with_rules(hurt())
    for drop, said in ((Looked, "decided from"), (RunStarted, "decided from"), (RulesSet, "which rules")):
        with pytest.raises(NotReplayableError, match=said):
            list(replay(s for s in whole if not isinstance(s.entry, drop)))
    bad = [replace(s, entry=RulesSet("{")) if isinstance(s.entry, RulesSet) else s for s in whole]
    with pytest.raises(NotReplayableError, match="this version"):
        list(replay(bad))


def test_rules_come_back_from_their_text_which_is_always_the_same() -> None:
    assert Rules.model_validate_json(as_text(AUTO)) == AUTO
    assert json.loads(as_text(AUTO))["cleared"] == sorted(AUTO.cleared)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The journal of a hurt run on disk, as in a run directory."""
    run = tmp_path / "demo"
    (run / "journal").mkdir(parents=True)
    journal, _ = Journal.begin(str(run / "journal"), time.time, "host", 1)
    for one in with_rules(hurt())[1:]:
        journal.append([one.entry], one.at)
    journal.close()
    return run


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, arguments, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.return_value, result.output


def test_the_command_reads_a_run_or_its_journal(folder: Path) -> None:
    code, text = run(str(folder))
    assert code == 0
    assert text.splitlines()[-1].endswith("decisions made again: 0 differ.")
    assert run(str(folder / "journal")) == (code, text)
    code, told = run(str(folder), "--json")
    assert (code, json.loads(told)["differing"]) == (0, 0)


def test_the_command_shows_another_profile(folder: Path) -> None:
    code, text = run(str(folder), "--profile", "approve")
    assert code == 0
    assert "recover (node-lost), carried out. Under approve: recover (node-lost), asks a person" in text
    assert not text.splitlines()[-1].endswith(": 0 differ.")


def test_the_command_names_the_fields_that_differ_and_says_no(tmp_path: Path) -> None:
    """Without a profile, a decision that comes out another way is exit 1."""
    folder = tmp_path / "j"
    folder.mkdir()
    journal, _ = Journal.begin(str(folder), time.time, "host", 1)
    for one in with_rules(hurt())[1:]:
        entry = one.entry
        if isinstance(entry, Decided) and isinstance(entry.decision, Recover) and entry.decision.bars:
            entry = replace(entry, decision=replace(entry.decision, bars=("n0",)))
        journal.append([entry], one.at)
    journal.close()
    code, text = run(str(folder))
    assert code == 1
    assert "          bars: ('n0',) -> ('n1',)" in text


def test_a_journal_without_what_was_seen_is_no_verdict(tmp_path: Path) -> None:
    from supervisor.errors import UserError

    journal, _ = Journal.begin(str(tmp_path), time.time, "host", 1)
    for one in with_rules(hurt())[1:]:
        if not isinstance(one.entry, Looked):
            journal.append([one.entry], one.at)
    journal.close()
    with pytest.raises(UserError, match="not in this journal") as caught:
        run(str(tmp_path))
    assert caught.value.exit_code == 3
    segment = tmp_path / "000001.jsonl"
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join([*lines[:2], lines[2][:-9] + b"\n", *lines[3:]]))
    with pytest.raises(UserError, match="journal-damaged"):
        run(str(tmp_path))
    with pytest.raises(UserError, match="no run"):
        run(str(tmp_path / "none"))


def test_the_command_shows_a_decision_of_another_kind(folder: Path, tmp_path: Path) -> None:
    """Another kind has no fields to compare: both decisions are named, and that is all."""
    profile = tmp_path / "strict.toml"
    profile.write_text('extends = "bench"\n[budget]\ninfrastructure = 0\n')
    code, text = run(str(folder), "--profile", str(profile))
    assert code == 0
    assert "halt (infrastructure-budget-spent)\n" in text
    assert "kind:" not in text
