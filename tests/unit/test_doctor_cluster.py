"""relight doctor on a login node and about a job, with Slurm's words planted: each verdict is seen to change."""

from dataclasses import replace
from pathlib import Path

import pytest

from slurm.calls import Answer
from slurm.jobs import Submission
from supervisor.doctor import cluster, config, job
from supervisor.doctor.cluster import Who
from supervisor.doctor.verdict import Check

CONFIG = """\
Configuration data as of 2026-12-01T05:12:48
AccountingStorageType   = accounting_storage/slurmdbd
AuthInfo                = socket=/run/other/munge.socket,cred_expire=10
AuthType                = auth/munge
JobRequeue              = 1
KillOnBadExit           = 0
MessageTimeout          = 10 sec
ProctrackType           = proctrack/cgroup
RequeueExit             = (null)
RequeueExitHold         = (null)
ReturnToService         = 1
SlurmUser               = slurm(64030)
SlurmdTimeout           = 300 sec
SLURM_VERSION           = 24.11.5
UnkillableStepTimeout   = 120 sec

Slurmctld(primary) at vm is UP
"""
UNMUNGED = "STATUS:          Success (0)\nENCODE_HOST:     n001 (10.0.0.1)\n"
NODES = "n001|idle|10.0.0.1|none|\nn002|allocated|10.0.0.2|none|\nn003|down+not_responding|10.0.0.3|none|\n"
JOB = "4711|RUNNING|2026-12-01T05:12:46|n[001-003]|n001|None\n"
ME = Who(1000, "li.wei")
FIT = {
    "scontrol ping": "Slurmctld(primary) at vm is UP\n\n",
    "scontrol show config": CONFIG,
    "munge": "MUNGE:AwQF:\n",
    "unmunge": UNMUNGED,
    "sacctmgr": "li.wei|Operator\nsomebody|None\n",
    "sinfo": NODES,
    "squeue -o": JOB,
    "squeue -O": "4711|1|1-02:03:04|\n",
    "scontrol write": "#!/bin/bash\n#SBATCH --nodes=3\nexec relight run\n",
    "sacct": "sbatch --nodes=4 --no-kill --requeue job.sh\n",
}
FAILED = Answer(1, "", "slurm_load: Unable to contact slurm controller (connect failure)\n")


class Slurm:
    """Answers with what was planted. A text is an answer that was well; the longest words that fit count."""

    def __init__(self):
        self.answers = dict(FIT)
        self.asked = []

    def __call__(self, *argv):
        self.asked.append(argv)
        words = {" ".join(argv[:2]), argv[0], *(" ".join((argv[0], one)) for one in argv), " ".join(argv[:3])}
        found = max((one for one in self.answers if one in words), key=len)
        answer = self.answers[found]
        return Answer(0, answer, "") if isinstance(answer, str) else answer


@pytest.fixture
def slurm():
    return Slurm()


def look(slurm, who=ME, nodes=2, drain=True, spares=0):
    seen = cluster.look(slurm, who, nodes=nodes, drain=drain, spares=spares)
    return {check.name: check for check in seen.checks}


def other(slurm, key, value):
    lines = [f"{key} = {value}" if line.split(" ")[0] == key else line for line in CONFIG.splitlines()]
    assert "\n".join(lines) != CONFIG.rstrip()
    slurm.answers["scontrol show config"] = "\n".join(lines)


def test_a_fit_cluster_is_ok_in_every_check_and_nothing_is_changed(slurm):
    found = look(slurm)
    assert {name: check.state for name, check in found.items()} == dict.fromkeys(found, "ok")
    assert list(found) == [
        "slurmctld", "slurm-version", "proctrack", "slurmd-timeout", "unkillable", "return-service", "bad-exit",
        "requeue", "requeue-exit", "munge", "rights", "cluster-nodes",
    ]  # fmt: skip
    assert not any("update" in argv or "create" in argv or "modify" in argv for argv in slurm.asked)


@pytest.mark.parametrize(
    ("key", "value", "name", "state"),
    [
        ("SLURM_VERSION", "23.02.7", "slurm-version", "warn"),
        ("SLURM_VERSION", "(null)", "slurm-version", "unknown"),
        ("ProctrackType", "proctrack/linuxproc", "proctrack", "warn"),
        ("SlurmdTimeout", "20 sec", "slurmd-timeout", "warn"),
        ("SlurmdTimeout", "0 sec", "slurmd-timeout", "warn"),
        ("SlurmdTimeout", "soon", "slurmd-timeout", "unknown"),
        ("UnkillableStepTimeout", "60 sec", "unkillable", "warn"),
        ("ReturnToService", "2", "return-service", "warn"),
        ("ReturnToService", "?", "return-service", "unknown"),
        ("KillOnBadExit", "?", "bad-exit", "unknown"),
        ("JobRequeue", "0", "requeue", "warn"),
        ("RequeueExit", "1-99", "requeue-exit", "bad"),
        ("RequeueExit", "93", "requeue-exit", "bad"),
        ("RequeueExit", "70", "requeue-exit", "warn"),
        ("RequeueExitHold", "90-95", "requeue-exit", "warn"),
        ("RequeueExit", "200", "requeue-exit", "ok"),
        ("RequeueExit", "all", "requeue-exit", "unknown"),
        ("RequeueExit", "9-1", "requeue-exit", "unknown"),
        ("AuthType", "auth/slurm", "munge", "ok"),
        ("AccountingStorageType", "accounting_storage/none", "rights", "warn"),
    ],
)
def test_one_line_of_slurm_conf_changes_its_own_check_and_no_other(slurm, key, value, name, state):
    other(slurm, key, value)
    found = look(slurm)
    assert found[name].state == state
    assert {n for n, check in found.items() if check.state != "ok"} <= {name}
    assert found[name].right or state == "ok"


def test_a_key_that_slurm_does_not_tell_is_unknown():
    checks = config.judge({})
    assert {check.state for check in checks} == {"unknown"}
    assert all(check.right for check in checks)


def test_the_first_of_a_key_stands_and_what_is_no_key_is_left_out():
    assert config.parse("A = 1\nA = 2\nno key = 3\nB =\nC  = x = y\n") == {"A": "1", "C": "x = y"}


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (Answer(1, "Slurmctld(primary) at vm is DOWN\n", ""), "bad"),
        (FAILED, "bad"),
        (Answer(None, "", ""), "unknown"),
        (Answer(127, "", "No such file or directory: 'scontrol'"), "unknown"),
    ],
)
def test_a_slurmctld_that_does_not_answer_is_the_only_thing_said(slurm, answer, state):
    slurm.answers["scontrol ping"] = answer
    seen = cluster.look(slurm, ME, nodes=2, drain=True)
    assert [(check.name, check.state, bool(check.right)) for check in seen.checks] == [("slurmctld", state, True)]
    assert not seen.answers


@pytest.mark.parametrize("answer", [FAILED, "", Answer(None, "", "")])
def test_a_config_that_cannot_be_read_is_unknown(slurm, answer):
    slurm.answers["scontrol show config"] = answer
    found = look(slurm)
    assert {name for name, check in found.items() if check.state == "unknown"} == {"slurm-config", "munge", "rights"}


@pytest.mark.parametrize(
    ("command", "answer", "state", "seen"),
    [
        ("munge", Answer(127, "", "No such file or directory: 'munge'"), "unknown", "No such file"),
        ("munge", Answer(6, "", "munge: Error: Failed to access socket"), "bad", "Failed to access socket"),
        ("munge", Answer(None, "", ""), "bad", "did not answer in time"),
        ("unmunge", Answer(15, "STATUS:          Expired credential (15)\n", ""), "bad", "Expired credential"),
        ("unmunge", Answer(0, "", ""), "bad", "unmunge ended with 0"),
    ],
)
def test_a_munge_that_refuses_its_own_credential_is_bad(slurm, command, answer, state, seen):
    slurm.answers[command] = answer
    check = look(slurm)["munge"]
    assert (check.state, seen in check.seen) == (state, True)


def test_munge_is_asked_at_the_socket_of_slurm_conf(slurm):
    look(slurm)
    asked = [argv for argv in slurm.asked if argv[0] in {"munge", "unmunge"}]
    assert all(argv[argv.index("-S") + 1] == "/run/other/munge.socket" for argv in asked)
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("who", "answer", "state"),
    [
        (Who(0, "root"), FAILED, "ok"),
        (Who(64030, "slurm"), FAILED, "ok"),
        (Who(6403, "lur"), "lur|None\n", "warn"),
        (ME, "li.wei|Administrator\n", "ok"),
        (ME, "li.wei|None\nli.weiss|Operator\n", "warn"),
        (ME, "", "warn"),
        (ME, FAILED, "unknown"),
    ],
)
def test_rights_are_looked_up_and_not_tried(slurm, who, answer, state):
    slurm.answers["sacctmgr"] = answer
    check = look(slurm, who)["rights"]
    assert check.state == state
    assert bool(check.right) == (state != "ok")


def test_whoever_wants_no_drain_needs_no_rights(slurm):
    slurm.answers["sacctmgr"] = FAILED
    assert look(slurm, drain=False)["rights"].state == "ok"


@pytest.mark.parametrize(
    ("needed", "answer", "state"),
    [(2, NODES, "ok"), (3, NODES, "warn"), (4, NODES, "bad"), (1, FAILED, "unknown"), (1, "nonsense\n", "unknown")],
)
def test_nodes_that_are_up_are_counted(slurm, needed, answer, state):
    slurm.answers["sinfo"] = answer
    assert look(slurm, nodes=needed)["cluster-nodes"].state == state


@pytest.mark.parametrize(("spares", "state"), [(0, "ok"), (1, "warn"), (2, "warn")])
def test_nodes_are_counted_for_the_spares_too(slurm, spares, state):
    """Two are up and three are listed; the layout needs two, or one."""
    check = look(slurm, nodes=2, spares=spares)["cluster-nodes"]
    assert check.state == state
    assert ("beside them" in check.seen) is bool(spares)
    assert ("fewer spares" in check.right) is (spares > 1)
    assert look(slurm, nodes=1, spares=1)["cluster-nodes"].state == "ok"


# --- the job -------------------------------------------------------------------------------------------------------

INSIDE = {"SLURM_JOB_ID": "4711"}


def look_at_job(slurm, env=INSIDE, needed=2, accounting=True):
    seen = job.look(slurm, "4711", env, needed=needed, accounting=accounting)
    return {check.name: check for check in seen.checks}, seen.nodes


def test_a_fit_job_is_ok(slurm):
    found, nodes = look_at_job(slurm)
    assert {name: check.state for name, check in found.items()} == {
        "job": "ok", "job-requeue": "ok", "job-time": "ok", "job-no-kill": "ok",
    }  # fmt: skip
    assert nodes == ("n001", "n002", "n003")
    assert found["job-time"].seen == "1 day 2 h left"


@pytest.mark.parametrize(
    ("answer", "needed", "state", "nodes"),
    [
        (JOB, 3, "warn", 3),
        (JOB, 4, "bad", 3),
        (JOB.replace("RUNNING", "PENDING").replace("n[001-003]", ""), 2, "bad", 0),
        (JOB.replace("4711", "4712"), 2, "bad", 0),
        (JOB.replace("RUNNING", "DREAMING"), 2, "bad", 0),
        ("half a line", 2, "unknown", 0),
        (FAILED, 2, "unknown", 0),
    ],
)
def test_a_job_that_cannot_carry_the_layout_is_said(slurm, answer, needed, state, nodes):
    slurm.answers["squeue -o"] = answer
    found, held = look_at_job(slurm, needed=needed)
    assert (found["job"].state, len(held)) == (state, nodes)
    assert found["job"].right


@pytest.mark.parametrize(
    ("spares", "state", "said"),
    [
        (0, "ok", "the layout needs 2, 1 spare"),
        (1, "ok", "the layout needs 2, 1 spare"),
        (2, "warn", "the layout needs 2, 1 spare, and 2 were asked for"),
    ],
)
def test_a_job_without_the_spares_that_were_asked_for_is_said(slurm, spares, state, said):
    check = job.look(slurm, "4711", INSIDE, needed=2, accounting=True, spares=spares).checks[0]
    assert (check.state, check.seen.partition("; ")[2]) == (state, said)


def test_how_many_spares_were_asked_for_is_in_the_environment_of_the_job():
    how = Submission(("--nodes=6", "--no-kill", "/shared/job.sh"), "/shared", 4)
    env = INSIDE | {"RELIGHT_SBATCH": how.text()}
    assert job.spares_asked(env, "4711", 1) == 2
    assert job.spares_asked(env, "4712", 1) == 1  # of another job
    assert job.spares_asked(INSIDE, "4711", 1) == 1
    for unknown in (replace(how, least=0), replace(how, least=7), replace(how, words=("/shared/job.sh",))):
        assert job.spares_asked(INSIDE | {"RELIGHT_SBATCH": unknown.text()}, "4711", 1) == 1


@pytest.mark.parametrize(
    ("answer", "requeue", "time"),
    [
        ("4711|0|1-02:03:04|\n", "warn", "ok"),
        ("4711|1|UNLIMITED|\n", "ok", "ok"),
        ("4711|1|29:59|\n", "ok", "warn"),
        ("4711|1|30:00|\n", "ok", "ok"),
        ("4711|1|0:00|\n", "ok", "warn"),
        ("4711|?|INVALID|\n", "unknown", "unknown"),
        ("4712|1|UNLIMITED|\n", "unknown", "unknown"),
        ("4711|1\n", "unknown", "unknown"),
        (FAILED, "unknown", "unknown"),
    ],
)
def test_requeue_and_the_time_left(slurm, answer, requeue, time):
    slurm.answers["squeue -O"] = answer
    found, _ = look_at_job(slurm)
    assert (found["job-requeue"].state, found["job-time"].state) == (requeue, time)


BARE = "sbatch --nodes=4 job.sh"


@pytest.mark.parametrize(
    ("submitted", "script", "env", "state"),
    [
        ("sbatch -k -N4 job.sh", "", INSIDE, "ok"),
        ("sbatch -N 4 --no-kill=off job.sh", "", INSIDE, "bad"),
        (f"{BARE} --no-kill", "", INSIDE, "bad"),  # that is for the script
        (BARE, "#SBATCH --no-kill", INSIDE, "ok"),
        (BARE, "#SBATCH --no-kill=off", INSIDE, "bad"),
        (BARE, "", INSIDE, "bad"),
        (BARE, "", {}, "unknown"),  # the variable can't be seen from outside
        (BARE, "", INSIDE | {"SBATCH_NO_KILL": "set"}, "ok"),
        (BARE, "", {"SLURM_JOB_ID": "4712", "SBATCH_NO_KILL": "set"}, "unknown"),
        (BARE, "#SBATCH --x='", INSIDE, "bad"),
        (FAILED, "", INSIDE, "unknown"),
        (FAILED, "#SBATCH -k", INSIDE, "ok"),
        ("sbatch 'half", "", INSIDE, "unknown"),
        (BARE, FAILED, INSIDE, "unknown"),
    ],
)
def test_no_kill_is_believed_only_where_it_was_asked_for(slurm, submitted, script, env, state):
    slurm.answers["sacct"] = submitted
    slurm.answers["scontrol write"] = f"#!/bin/sh\n{script}\nexec x\n" if isinstance(script, str) else script
    check = look_at_job(slurm, env)[0]["job-no-kill"]
    assert check.state == state
    assert bool(check.right) == (state != "ok")


def test_without_accounting_sacct_is_not_asked(slurm):
    found, _ = look_at_job(slurm, accounting=False)
    assert found["job-no-kill"].state == "unknown"
    assert not any(argv[0] == "sacct" for argv in slurm.asked)


def test_relight_sbatch_sets_the_variable_that_tells(tmp_path, monkeypatch):
    """What the job will have in its environment, since sbatch hands its own on."""
    (tmp_path / "sbatch").write_text(f"#!/bin/sh\nenv >{tmp_path}/env\necho Submitted batch job 1\n")
    (tmp_path / "sbatch").chmod(0o755)
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#SBATCH --nodes=2\nrelight run -- true\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    from click.testing import CliRunner

    from supervisor.commands.sbatch import command

    assert CliRunner().invoke(command, [str(tmp_path / "job.sh")], standalone_mode=False).return_value == 0
    env = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if "=" in line)
    check = job.no_kill(Slurm(), "4711", env, accounting=False)
    assert check == Check("job-no-kill", "ok", "SBATCH_NO_KILL was set when the job was submitted")


def test_a_credential_lies_in_a_file_of_ours_alone_and_not_for_long(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = []

    def ask(*argv):
        path = Path(argv[-1])
        seen.append((path.read_text(), path.parent.stat().st_mode & 0o777))
        return Answer(0, UNMUNGED, "")

    assert cluster.decoded(ask, "MUNGE:x:", "") == ""
    assert seen == [("MUNGE:x:", 0o700)]
    assert list(tmp_path.iterdir()) == []
