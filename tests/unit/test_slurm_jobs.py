"""The job that holds the nodes, and the one that follows it: what is read of it, and what is asked for once."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from math import inf

import pytest

from slurm import parsing
from slurm.asking import Commands
from slurm.awaited import asked_for, is_awaited, left_out
from slurm.calls import Answer, clean_environment
from slurm.jobs import REFUSED_MAX, Following, Jobs, Submission
from slurm.parsing import JobRow, JobTimes
from slurm.states import Phase

ROW = JobRow("12", "RUNNING", Phase.RUNNING, "2026-12-01T05:15:02", ("n001", "n002"), "n001", "")
SHOWN = "JobId=12 JobName=llm 500b UserId=root(0) GroupId=root(0) ReqNodeList=(null) ExcNodeList=n[008-009] NodeList=n[001-002]\n"
END = datetime(2026, 12, 1, 5, 25, 2, tzinfo=UTC).timestamp()
MAINT = (
    "ReservationName=m StartTime=2100-12-01T07:15:10 EndTime=2100-12-01T08:15:10 Nodes=n[002-003] Flags=MAINT,IGNORE_JOBS\n"
    "ReservationName=x StartTime=2099-12-01T07:15:10 EndTime=2100-12-01T08:15:10 Nodes=n002 Flags=SPEC_NODES\n"
)
AGAIN = Submission(("--nodes=3", "/shared/job.sbatch"), "/shared")
NAMED = "--job-name=llm 500b"


class Told(Commands):
    """Answers by the first word; what it was asked is kept."""

    def __init__(self, answers: dict[str, str], phases: tuple[Phase, ...] = (), start: str = ROW.start) -> None:
        super().__init__("12", {}, 1.0)
        self.answers = answers
        self.phases = list(phases)
        self.start = start
        self.asked: list[tuple[str, ...]] = []

    def ask(self, *argv, deadline_s=None, cwd=None, env=None):  # noqa: ARG002 - as it is
        self.asked.append(argv)
        for word in (" ".join(argv[:2]), argv[0]):
            if word in self.answers:
                return Answer(0, self.answers[word], "")
        return Answer(1, "", "error: no")

    def submit(self, *words, cwd, env):
        self.given = env
        return self.ask("sbatch", *words, cwd=cwd, env=env)

    def job(self):
        return replace(ROW, start=self.start, phase=self.phases.pop(0) if len(self.phases) > 1 else self.phases[0])


def submitted(told: Told) -> list[tuple[str, ...]]:
    return [argv for argv in told.asked if argv[0] == "sbatch"]


def test_when_a_job_ends_is_read_in_utc_and_what_is_not_said_is_not_known() -> None:
    assert parsing.times("2026-12-01T05:25:02|N/A|1|\n") == JobTimes(END, None, requeue=True)
    assert parsing.times("N/A|2026-12-01T05:25:02|0|\n") == JobTimes(None, END, requeue=False)
    for nonsense in ("", "a\nb\n", "now\n"):
        with pytest.raises(ValueError, match="not"):
            parsing.times(nonsense)


def test_only_maintenance_of_ours_that_is_to_come_ends_a_job() -> None:
    assert [nodes for _, nodes in parsing.maintenance(MAINT)] == [("n002", "n003")]
    known = {"squeue": "N/A|N/A|1|\n", "scontrol -o": MAINT}
    shown = Jobs("/nowhere", Told(known), Following()).describe(ROW)
    assert (shown.ends_by, shown.ends_at) == ("maintenance", datetime(2100, 12, 1, 7, 15, 10, tzinfo=UTC).timestamp())
    others = Jobs("/nowhere", Told(known), Following()).describe(replace(ROW, nodes=("n001",)))
    assert (others.ends_by, others.ends_at) == ("", None)


def test_a_preemption_ends_with_its_grace_time_and_what_fails_is_not_known() -> None:
    both = Told({"squeue": "2026-12-01T05:25:02|2026-12-01T05:20:02|1|\n"})
    shown = Jobs("/nowhere", both, Following()).describe(ROW)
    assert (shown.ends_at, shown.ends_by) == (END, "preemption")
    unsaid = Jobs("/nowhere", Told({"squeue": "N/A|2026-12-01T05:25:02|1|\n"}), Following()).describe(ROW)
    assert (unsaid.ends_at, unsaid.ends_by) == (END, "preemption")
    blind = Jobs("/nowhere", Told({}), Following()).describe(ROW)
    assert (blind.ends_at, blind.can_follow) == (None, False)


@pytest.mark.parametrize("phase", [Phase.WAITING, Phase.ENDED])
def test_a_job_that_does_not_run_has_no_end_to_come_and_may_be_requeued_all_the_same(phase: Phase) -> None:
    told = Told({"squeue --noheader": "2026-12-01T05:25:02|N/A|1|\n"})
    shown = Jobs("/nowhere", told, Following()).describe(replace(ROW, phase=phase))
    assert (shown.ends_at, shown.ends_by, shown.can_follow) == (None, "", True)
    assert "--states=all" in told.asked[0]


def test_what_was_read_while_a_job_waited_is_read_anew_when_it_runs() -> None:
    told = Told({"squeue --noheader": "N/A|N/A|0|\n"})
    jobs = Jobs("/nowhere", told, Following())
    assert not jobs.describe(replace(ROW, phase=Phase.WAITING, start="")).can_follow
    told.answers["squeue --noheader"] = "2026-12-01T05:25:02|N/A|1|\n"
    shown = jobs.describe(ROW)
    assert (shown.ends_at, shown.ends_by, shown.can_follow) == (END, "time limit", True)
    told.answers["squeue --noheader"] = "N/A|N/A|0|\n"
    assert jobs.describe(ROW) == shown  # not at every look


def test_one_that_waits_is_told_to_begin_each_time(tmp_path) -> None:
    (tmp_path / "nodes").mkdir()
    told = Told({"scontrol -o": SHOWN, "scontrol update": ""}, (Phase.WAITING,))
    waits = replace(ROW, phase=Phase.WAITING, start="", nodes=())
    for _ in range(2):  # in two requeues: it has no start to tell them apart
        Jobs(str(tmp_path), told, Following()).next_job(waits, ROW.start, [])
    assert [argv[1] for argv in told.asked].count("update") == 2
    assert ("scontrol", "requeue", "12") not in told.asked


@pytest.mark.parametrize(
    ("requeue", "following", "can"),
    [
        ("1", Following(), True),
        ("0", Following(), False),
        ("0", Following(AGAIN, requeue=False), True),
        ("1", Following(None, requeue=False), False),
    ],
)
def test_whether_a_job_can_follow(requeue: str, following: Following, can: bool) -> None:
    told = Told({"squeue": f"N/A|N/A|{requeue}|\n"})
    assert Jobs("/nowhere", told, following).describe(ROW).can_follow is can


def test_the_next_job_is_submitted_once_without_the_nodes_that_are_barred_or_excluded(tmp_path) -> None:
    (tmp_path / "nodes").mkdir()
    told = Told({"scontrol -o": SHOWN, "squeue": "", "sbatch": "13\n"})
    jobs = Jobs(str(tmp_path), told, Following(AGAIN))
    jobs.next_job(ROW, ROW.start, ["n002"])
    jobs.next_job(ROW, ROW.start, ["n002"])
    assert submitted(told) == [
        ("sbatch", "--parsable", NAMED, "--dependency=afterany:12", "--exclude=n008,n009,n002", *AGAIN.words)
    ]
    assert jobs.describe(ROW).next == "13"
    anew = Jobs(str(tmp_path), told, Following(AGAIN))  # another controller
    anew.next_job(ROW, ROW.start, ["n002"])
    assert len(submitted(told)) == 1
    assert anew.describe(replace(ROW, start="later")).next == ""


def test_the_next_job_has_the_variables_that_this_one_was_submitted_with_and_none_of_ours(
    tmp_path, monkeypatch
) -> None:
    """Its account and partition may stand nowhere else; English and UTC are for what is read here, not for the training."""
    (tmp_path / "nodes").mkdir()
    (tmp_path / "sbatch").write_text(f"#!/bin/sh\nenv >{tmp_path}/env\necho 13\n")
    (tmp_path / "sbatch").chmod(0o755)
    theirs = {"SBATCH_ACCOUNT": "proj42", "SBATCH_QOS": "long", "LC_ALL": "de_DE.UTF-8", "TZ": "Europe/Berlin"}
    of_this_job = {"SBATCH_CPU_BIND_TYPE": "mask_cpu:", "SBATCH_MEM_BIND": "local", "SLURM_JOB_ID": "12"}
    for name, value in (theirs | of_this_job | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}).items():
        monkeypatch.setenv(name, value)

    class Real(Told):
        submit = Commands.submit

    told = Real({"scontrol -o": SHOWN, "squeue": ""})
    told.env = clean_environment(os.environ)
    Jobs(str(tmp_path), told, Following(replace(AGAIN, cwd=str(tmp_path)))).next_job(ROW, ROW.start, [])
    had = dict(line.partition("=")[::2] for line in (tmp_path / "env").read_text().splitlines())
    assert {name: had.get(name) for name in theirs} == theirs
    assert had["SBATCH_NO_KILL"] == "set"
    assert not had.keys() & of_this_job.keys()


def test_a_next_job_of_which_only_the_reply_was_lost_is_found_by_the_name_that_it_was_given(tmp_path) -> None:
    (tmp_path / "nodes").mkdir()
    told = Told({"scontrol -o": SHOWN, "squeue": ""})
    jobs = Jobs(str(tmp_path), told, Following(AGAIN))
    with pytest.raises(OSError, match="sbatch"):
        jobs.next_job(ROW, ROW.start, [])
    name = next(word.partition("=")[2] for word in submitted(told)[0] if word.startswith("--job-name="))
    told.answers["squeue"] = f"13|afterany:12(unfulfilled)|{name}\n"
    jobs.next_job(ROW, ROW.start, [])
    assert len(submitted(told)) == 1
    assert jobs.describe(ROW).next == "13"


def test_a_requeue_that_was_only_late_may_have_been_heard(tmp_path) -> None:
    (tmp_path / "nodes").mkdir()

    class Late(Told):
        code: int | None = None

        def ask(self, *argv, deadline_s=None, cwd=None, env=None):
            if argv[:2] == ("scontrol", "requeue"):
                return Answer(self.code, "", "")
            return super().ask(*argv, deadline_s=deadline_s, cwd=cwd, env=env)

    told = Late({"scontrol -o": SHOWN}, (Phase.RUNNING,))
    for code in (None, 1):
        told.code = code
        with pytest.raises(OSError, match="scontrol requeue"):
            Jobs(str(tmp_path), told, Following()).next_job(ROW, ROW.start, [])
        assert is_awaited(str(tmp_path), ROW.id, ROW.start) is (code is None)


def test_a_job_that_has_begun_anew_since_it_was_decided_is_followed_by_none(tmp_path) -> None:
    (tmp_path / "nodes").mkdir()
    told = Told({"scontrol -o": SHOWN, "squeue": "", "sbatch": "13\n"})
    Jobs(str(tmp_path), told, Following(AGAIN)).next_job(replace(ROW, start="2026-12-01T06:00:00"), ROW.start, [])
    assert told.asked == []


def test_the_next_job_may_have_what_only_we_had_left_out_of_this_one(tmp_path) -> None:
    """n002 was barred in job 12 and is not any more; n008 and n009 are its owner's wish, and n001 is barred now."""
    (tmp_path / "nodes").mkdir()
    told = Told({"scontrol -o": SHOWN, "squeue": "", "sbatch": "13\n"})
    Jobs(str(tmp_path), told, Following(AGAIN)).next_job(ROW, ROW.start, ["n002", "n008"])
    assert left_out(str(tmp_path), "13", "2026-12-02T05:00:00") == {"n002"}
    assert left_out(str(tmp_path), "12", ROW.start) == frozenset()
    thirteen = replace(ROW, id="13", start="2026-12-02T05:00:00")
    told.answers |= {"scontrol -o": SHOWN.replace("n[008-009]", "n[002,008-009]"), "sbatch": "14\n"}
    Jobs(str(tmp_path), told, Following(AGAIN)).next_job(thirteen, thirteen.start, ["n001"])
    assert submitted(told)[-1][4] == "--exclude=n008,n009,n001"
    fourteen = replace(ROW, id="14", start="2026-12-03T05:00:00")
    told.answers |= {"scontrol -o": SHOWN.replace("n[008-009]", "n001"), "sbatch": "15\n"}
    Jobs(str(tmp_path), told, Following(AGAIN)).next_job(fourteen, fourteen.start, [])
    assert submitted(told)[-1] == ("sbatch", "--parsable", NAMED, "--dependency=afterany:14", *AGAIN.words)


def test_what_a_requeue_has_left_out_is_cleared_at_the_next_one(tmp_path) -> None:
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "next-11-2026-11-30T050000.json").write_text('{"schema":1,"next":"12","without":["n007"]}')
    (tmp_path / "nodes" / "next-9-torn.json").write_text("[")
    known = {"scontrol -o": SHOWN.replace("n[008-009]", "(null)"), "scontrol requeue": "", "scontrol update": ""}
    told = Told(known, (Phase.WAITING,))
    for at, shown, barred, said in (
        ("2026-12-01T05:15:02", "n007", ["n002"], ["ExcNodeList=n002"]),
        ("2026-12-02T05:15:02", "n002", [], ["ExcNodeList="]),
        ("2026-12-03T05:15:02", "(null)", [], []),
        ("2026-12-04T05:15:02", "n002", ["n003"], ["ExcNodeList=n002,n003"]),  # its owner has said so meanwhile
    ):
        told.answers["scontrol -o"] = SHOWN.replace("n[008-009]", shown)
        Jobs(str(tmp_path), told, Following()).next_job(replace(ROW, start=at), at, barred)
        assert list(told.asked[-1][4:]) == said


def test_one_that_was_submitted_and_not_noted_is_found_and_a_stranger_that_waits_is_not(tmp_path) -> None:
    (tmp_path / "nodes").mkdir()
    waiting = "21|afterany:12(unfulfilled)|evaluation\n22|afterany:120(unfulfilled)|llm 500b\n"
    told = Told({"scontrol -o": SHOWN, "squeue": waiting, "sbatch": "13\n"})
    jobs = Jobs(str(tmp_path), told, Following(AGAIN))
    assert parsing.waiting_for(waiting, "12", "llm 500b") == ""
    told.answers["squeue"] += "23|afterok:9,afterany:12(unfulfilled)|llm 500b\n"
    jobs.next_job(ROW, ROW.start, [])
    assert submitted(told) == []
    assert jobs.describe(ROW).next == "23"


def test_a_requeued_job_is_told_to_begin_once_it_is_pending(tmp_path) -> None:
    (tmp_path / "nodes").mkdir()
    told = Told(
        {"scontrol -o": SHOWN, "scontrol requeue": "", "scontrol update": ""},
        (Phase.ENDING, Phase.ENDING, Phase.WAITING),
    )
    Jobs(str(tmp_path), told, Following()).next_job(ROW, ROW.start, ["n002"])
    words = [argv[1:] for argv in told.asked if argv[1] in {"requeue", "update"}]
    assert words == [("requeue", "12"), ("update", "JobId=12", "StartTime=now+3", "ExcNodeList=n008,n009,n002")]


def test_steps_are_ended_before_the_job_is_requeued(tmp_path) -> None:
    """A job that ends before a step that has lost a node has healthy nodes drained by Slurm."""
    (tmp_path / "nodes").mkdir()
    told = Told({"scontrol -o": SHOWN, "scontrol requeue": "", "scontrol update": ""}, (Phase.WAITING,))
    before: list[tuple[str, ...]] = []
    Jobs(str(tmp_path), told, Following(), lambda: before.extend(told.asked)).next_job(ROW, ROW.start, [])
    assert before
    assert ("scontrol", "requeue", "12") not in before
    assert ("scontrol", "requeue", "12") in told.asked


@pytest.mark.parametrize("fault", [OSError("scancel did not answer in time"), ValueError("demo.claim: torn")])
def test_steps_that_cannot_be_ended_keep_no_job_from_following(tmp_path, fault) -> None:
    """Else one that is requeued would never be."""

    def end_steps() -> None:
        raise fault

    (tmp_path / "nodes").mkdir()
    told = Told({"scontrol -o": SHOWN, "scontrol requeue": "", "scontrol update": ""}, (Phase.WAITING,))
    Jobs(str(tmp_path), told, Following(), end_steps).next_job(ROW, ROW.start, [])
    assert asked_for(str(tmp_path), ROW.id, ROW.start) == "requeued"


def test_how_long_the_job_still_has() -> None:
    told = Told({})
    jobs = Jobs("/nowhere", told, Following())
    assert jobs.left_s() == inf
    end = datetime.fromtimestamp(time.time() + 40, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    told.answers["squeue"] = f"{end}|N/A|1|\n"
    jobs.describe(ROW)
    assert 30 < jobs.left_s() <= 40
    jobs.describe(replace(ROW, phase=Phase.WAITING))
    assert jobs.left_s() == inf


def test_one_that_has_begun_again_before_anybody_looked_is_not_waited_for(tmp_path) -> None:
    (tmp_path / "nodes").mkdir()
    told = Told({"scontrol -o": SHOWN, "scontrol requeue": ""}, (Phase.RUNNING,), start="2026-12-01T05:16:00")
    jobs = Jobs(str(tmp_path), told, Following())
    jobs.next_job(ROW, ROW.start, [])
    assert jobs.describe(ROW).next == "requeued"


def test_where_no_job_can_follow_or_slurm_says_no_it_is_told(tmp_path) -> None:
    (tmp_path / "nodes").mkdir()
    with pytest.raises(OSError, match="no next job"):
        Jobs(str(tmp_path), Told({}), Following(None, requeue=False)).next_job(ROW, ROW.start, [])
    refused = Told({"scontrol -o": SHOWN, "squeue": ""})
    with pytest.raises(OSError, match="sbatch ended with 1: error: no"):
        Jobs(str(tmp_path), refused, Following(AGAIN)).next_job(ROW, ROW.start, [])
    assert not list((tmp_path / "nodes").iterdir())


class Small(Told):
    """A partition that has `room` nodes when the excluded ones are left out, and says so as sbatch does."""

    room = 0

    def ask(self, *argv, deadline_s=None, cwd=None, env=None):
        if argv[0] != "sbatch":
            return super().ask(*argv, deadline_s=deadline_s, cwd=cwd, env=env)
        self.asked.append(argv)
        wanted = next(int(word.partition("=")[2]) for word in argv if word.startswith("--nodes="))
        if wanted <= self.room:
            return Answer(0, "13\n", "")
        return Answer(
            1, "", "sbatch: error: Batch job submission failed: Requested node configuration is not available"
        )


@pytest.mark.parametrize(("room", "barred", "taken"), [(6, 1, 6), (5, 1, 5), (4, 2, 4), (4, 1, None), (3, 3, None)])
def test_where_the_partition_is_too_small_without_the_barred_nodes_each_of_them_costs_a_spare(
    tmp_path, room: int, barred: int, taken: int | None
) -> None:
    (tmp_path / "nodes").mkdir()
    told = Small({"scontrol -o": SHOWN.replace("n[008-009]", "(null)"), "squeue": ""})
    told.room = room
    words = ("--nodes=6", "--no-kill", "--ntasks=48", "/shared/job.sbatch", "--nodes=6", "--ntasks=48")
    again = Submission(words, "/shared", 4)
    jobs = Jobs(str(tmp_path), told, Following(Submission.read(again.text())))
    bars = [f"n{number:03d}" for number in range(1, barred + 1)]
    if taken is None:
        with pytest.raises(OSError, match="node configuration"):
            jobs.next_job(ROW, ROW.start, bars)
    else:
        jobs.next_job(ROW, ROW.start, bars)
        own = words[3:]  # the script and its arguments are not ours to change
        assert submitted(told)[-1][-6:] == (f"--nodes={taken}", "--no-kill", f"--ntasks={taken * 8}", *own)
    assert min(int(argv[-6].partition("=")[2]) for argv in submitted(told)) >= 4


def test_how_many_the_training_needs_is_not_guessed(tmp_path) -> None:
    (tmp_path / "nodes").mkdir()
    told = Small({"scontrol -o": SHOWN, "squeue": ""})
    old = Submission.read('{"words": ["--nodes=6", "/shared/job.sbatch"], "cwd": "/"}')
    with pytest.raises(OSError, match="node configuration"):
        Jobs(str(tmp_path), told, Following(old)).next_job(ROW, ROW.start, ["n002"])
    assert len(submitted(told)) == 1


def test_a_job_that_sbatch_refuses_again_and_again_is_requeued_where_it_may_be(tmp_path) -> None:
    (tmp_path / "nodes").mkdir()
    answers = {"scontrol -o": SHOWN, "squeue": "", "scontrol requeue": "", "scontrol update": ""}
    for following, requeues in ((Following(AGAIN), True), (Following(AGAIN, requeue=False), False)):
        told = Told(dict(answers), (Phase.RUNNING, Phase.WAITING))
        jobs = Jobs(str(tmp_path), told, following)
        told.answers["squeue"] = "N/A|N/A|1|\n"
        jobs.describe(ROW)
        told.answers["squeue"] = ""
        for _ in range(REFUSED_MAX - 1):
            with pytest.raises(OSError, match="sbatch ended with 1"):
                jobs.next_job(ROW, ROW.start, [])
        if requeues:
            jobs.next_job(ROW, ROW.start, [])
            assert jobs.describe(replace(ROW, phase=Phase.ENDED)).next == "requeued"
            (tmp_path / "nodes" / "next-12-2026-12-01T051502.json").unlink()
        else:
            with pytest.raises(OSError, match="sbatch ended with 1"):
                jobs.next_job(ROW, ROW.start, [])
        assert (("scontrol", "requeue", "12") in told.asked) is requeues


def test_that_a_job_is_being_requeued_is_seen_when_whoever_asked_has_ended_with_it(tmp_path) -> None:
    (tmp_path / "nodes").mkdir()
    where = (str(tmp_path), ROW.id, ROW.start)

    class Ends(Told):
        def job(self):
            raise SystemExit  # as the end of its job ends whoever is in it

    told = Ends({"scontrol -o": SHOWN})
    with pytest.raises(OSError, match="scontrol requeue ended with 1"):
        Jobs(str(tmp_path), told, Following()).next_job(ROW, ROW.start, [])
    assert not is_awaited(*where)
    told.answers["scontrol requeue"] = ""
    with pytest.raises(SystemExit):
        Jobs(str(tmp_path), told, Following()).next_job(ROW, ROW.start, [])
    assert is_awaited(*where)
    assert asked_for(*where) == ""  # another controller that is still in it asks again
    assert not is_awaited(str(tmp_path), ROW.id, "later")


def test_a_name_that_ends_with_a_space_is_found_again() -> None:
    assert parsing.waiting_for("23|afterany:12(unfulfilled)|llm \n", "12", "llm ") == "23"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"words": [], "cwd": "/"}', '{"words": [1], "cwd": "/"}', '{"words": ["a"], "cwd": 1}']
)
def test_what_is_no_submission_is_none(text: str) -> None:
    assert Submission.read(text) is None
    assert Submission.read(AGAIN.text()) == AGAIN
    assert json.loads(AGAIN.text())["cwd"] == "/shared"
