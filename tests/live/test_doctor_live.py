"""relight doctor on a real Slurm: on a login node and inside a job, as root and as a user without rights, with faults planted."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import supervisor
from supervisor.bench.slurmbed import install
from supervisor.bench.slurmbed.bed import SlurmBed
from supervisor.bench.slurmbed.config import Shape

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("slurm")]

ROOT = Path(supervisor.__file__).parents[1]
NOBODY = 65534
AS_NOBODY = (
    "setpriv",
    "--reuid",
    str(NOBODY),
    "--regid",
    str(NOBODY),
    "--clear-groups",
    "--inh-caps=-all",
    "--bounding-set=-all",
)
WITH_NO_KILL = "#SBATCH --no-kill\n"


@pytest.fixture(scope="module")
def bed() -> Iterator[SlurmBed]:
    why = install.ensure()
    if why is not None:
        pytest.skip(why)
    # As a site should have it: what is warned of then is the test cluster's own.
    with SlurmBed(Shape(nodes=4, slurmd_timeout_s=12, message_timeout_s=4)) as bed:
        yield bed


@pytest.fixture
def place(bed, tmp_path_factory) -> Iterator[Path]:
    """A folder that every user of this machine may write."""
    folder = Path(bed.base, f"work-{len(os.listdir(bed.base))}")
    folder.mkdir()
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def anybodys_python() -> list[str]:
    """A Python that another user may start, with what is installed here; ours where it is not in somebody's home."""
    path = os.pathsep.join([str(ROOT), str(Path(click.__file__).parents[1])])
    for python in (sys.executable, f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"):
        words = ["env", f"PYTHONPATH={path}", python]
        done = subprocess.run(
            [*AS_NOBODY, *words, "-c", "import click, pydantic, json"], capture_output=True, check=False, cwd="/"
        )
        if done.returncode == 0:
            return words
    pytest.skip("no Python here that another user may start")


def doctor(bed, place, *words, before=(), python=None, **env):
    """Run it on this machine, as on a login node."""
    python = python or ["env", f"PYTHONPATH={ROOT}", sys.executable]
    argv = [*before, *python, "-m", "supervisor", "doctor", "--json", *words]
    done = subprocess.run(argv, env=bed.env | env, cwd=place, capture_output=True, text=True, check=False, timeout=200)
    return done.returncode, by_name(done.stdout, done.stderr)


def by_name(text, err=""):
    try:
        document = json.loads(text)
    except ValueError:
        raise AssertionError(f"{text} {err}") from None
    return {check["name"]: check for check in document["checks"]} | {"rows": document["nodes"]}


def states(found, prefix=""):
    return {name: check["state"] for name, check in found.items() if name != "rows" and name.startswith(prefix)}


def inside(bed, place, options="", python=None, nodes=4, env=None):
    """Run it as the script of a job does; answers with its exit code and what it said."""
    python = " ".join(python or ["env", f"PYTHONPATH={ROOT}", sys.executable])
    script = place / "job.sh"
    script.write_text(
        f"#!/bin/sh\n{options}cd {place}\n{python} -m supervisor doctor --json >said 2>err\necho $? >code.tmp; mv code.tmp code\n"
    )
    words = (
        "sbatch",
        "--parsable",
        "--requeue",
        "--exclusive",
        f"--nodes={nodes}",
        f"--chdir={place}",
        "--output=/dev/null",
    )
    job = subprocess.run(
        [*words, str(script)], env=bed.env | (env or {}), capture_output=True, text=True, check=True
    ).stdout.strip()
    bed.until((place / "code").exists, f"job {job} has looked", 120)
    return int((place / "code").read_text()), by_name((place / "said").read_text(), (place / "err").read_text())


def test_on_a_login_node(bed, place):
    code, found = doctor(bed, place)
    assert {n: s for n, s in states(found).items() if s in {"bad", "unknown"}} == {}
    assert code == 0
    assert {n for n, s in states(found).items() if s == "warn"} <= {
        "proctrack",
        "unkillable",
        "torch",
        "nvrx",
        "pyslurm",
    }
    assert found["rights"]["seen"] == "root may drain nodes (root or SlurmUser)"
    assert found["munge"]["state"] == found["cluster-nodes"]["state"] == "ok"
    assert (found["rows"], states(found, "nodes")) == ([], {})
    assert os.listdir(place) == []


def test_on_a_login_node_without_rights_nothing_is_drained_to_find_out(bed, place):
    _, found = doctor(bed, place, before=AS_NOBODY, python=anybodys_python())
    assert found["rights"]["state"] == "warn"
    assert "may not drain nodes" in found["rights"]["seen"]
    assert states(found, "slurm")["slurmctld"] == found["munge"]["state"] == found["fs-create"]["state"] == "ok"
    assert set(bed.node_states().values()) == {"idle"}


def test_inside_a_job_as_root(bed, place):
    code, found = inside(bed, place, WITH_NO_KILL)
    assert {n: s for n, s in states(found).items() if s in {"bad", "unknown"}} == {}
    assert code == 0
    assert states(found, "job") == {"job": "ok", "job-requeue": "ok", "job-time": "ok", "job-no-kill": "ok"}
    assert len(states(found, "nodes")) == 11
    assert [row["node"] for row in found["rows"]] == list(bed.names)
    assert all(row["same_folder"] and row["clock"]["bound"] < 5 for row in found["rows"])


def test_inside_a_job_without_rights(bed, place):
    code, found = inside(bed, place, WITH_NO_KILL, anybodys_python(), env=bed.as_user(NOBODY))
    assert found["rights"]["state"] == "warn"
    assert set(states(found, "nodes").values()) == {"ok"}
    assert set(states(found, "job").values()) == {"ok"}
    assert {n for n, s in states(found).items() if s in {"bad", "unknown"}} <= {"py-spy"}  # that may be in root's home
    assert code in {0, 1}


def test_a_job_that_one_lost_node_would_end_is_unknown_without_a_word_of_it(bed, place):
    code, found = inside(bed, place, nodes=2)
    assert (code, found["job-no-kill"]["state"]) == (3, "unknown")
    (place / "code").unlink()
    code, found = inside(bed, place, nodes=2, env={"SBATCH_NO_KILL": "set"})
    assert (code, found["job-no-kill"]["state"]) == (0, "ok")


def test_a_node_that_has_another_folder_there_is_named(bed, place):
    job = bed.submit(4)
    slurmd = next(pid for pid in bed.node_pids("n003") if Path(f"/proc/{pid}/comm").read_text() == "slurmd\n")
    subprocess.run(["nsenter", "-t", str(slurmd), "-m", "mount", "-t", "tmpfs", "none", str(place)], check=True)
    try:
        code, found = doctor(bed, place, "--job", job)
    finally:
        subprocess.run(["nsenter", "-t", str(slurmd), "-m", "umount", str(place)], check=True)
        bed.cancel(job)
    assert code == 1
    assert {n for n, s in states(found).items() if s == "bad"} == {
        "nodes-folder",
        "nodes-create",
        "nodes-lock",
        "nodes-sight",
    }
    assert found["nodes-folder"]["seen"].startswith("n003 does not see what this host wrote")


def test_a_node_that_has_crashed_is_named_and_the_others_are_looked_at(bed, place):
    job = bed.submit(4)
    bed.crash_node("n002")
    try:
        code, found = doctor(bed, place, "--job", job)
    finally:
        bed.start_node("n002")
        bed.cancel(job)
    assert code == 1
    assert found["nodes"]["seen"].startswith("1 node of 4 did not answer: n002; srun: Task launch")
    assert set(states(found, "nodes-").values()) == {"ok"}


def test_a_slurmctld_that_is_gone_is_all_that_is_said_of_the_cluster(bed, place):
    bed.stop_controller()
    try:
        code, found = doctor(bed, place)
    finally:
        bed.start_controller()
    assert (code, found["slurmctld"]["state"]) == (1, "bad")
    assert "rights" not in found
