"""relight doctor on the nodes of a job: a srun of ours starts the real probe as tasks of several nodes, and lies are planted."""

import asyncio
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from slurm.calls import Answer
from supervisor.doctor import nodes, probe, rounds, step
from supervisor.doctor.meeting import Clock, Tried
from supervisor.doctor.nodes import Ours
from supervisor.doctor.step import Heard
from supervisor.doctor.within import Late

NAMES = ("n001", "n002", "n003")
ROOT = Path(probe.__file__).parents[2]
SRUN = """\
#!/bin/sh
# Tasks of a step: the words behind --gres=none, once for each line of the hostfile.
echo "$@" >>"$RELIGHT_FAKE/words"
while [ "$1" != --gres=none ]; do shift; done; shift
while read -r node; do
  case " $RELIGHT_FAKE_DEAD " in
    *" $node "*) echo "srun: error: Task launch for 1.0 failed on node $node: Communication connection failure" >&2 ;;
    *) SLURMD_NODENAME=$node PYTHONPATH=$(cat "$RELIGHT_FAKE/path-$node" 2>/dev/null || echo "$PYTHONPATH") "$@" & echo $! >>"$RELIGHT_FAKE/pids" ;;
  esac
done <"$SLURM_HOSTFILE"
trap 'kill $(cat "$RELIGHT_FAKE/pids") 2>/dev/null; exit 143' TERM
wait
[ -z "$RELIGHT_FAKE_HANGS" ] || { sleep 1000 & wait $!; }
"""


@pytest.fixture
def fake(tmp_path):
    """The environment of a machine whose srun is ours."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "srun").write_text(SRUN)
    (tmp_path / "bin" / "munge").write_text('#!/bin/sh\necho "MUNGE:$SLURMD_NODENAME:"\n')
    for name in ("srun", "munge"):
        (tmp_path / "bin" / name).chmod(0o755)
    return {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "RELIGHT_FAKE": str(tmp_path), "PYTHONPATH": str(ROOT)}


def ask(*argv):
    """Unmunge, and a slurmctld that knows where a node is."""
    if argv[0] == "unmunge":
        told = Path(argv[-1]).read_text()
        good = told.startswith("MUNGE:n") and "n666" not in told
        return (
            Answer(0, "STATUS:          Success (0)\n", "")
            if good
            else Answer(9, "STATUS:          Invalid credential (9)\n", "")
        )
    return Answer(0, "n001|idle|127.0.0.1|none|\n", "")


class Seen:
    munge_socket = ""
    has_munge = True


def look(tmp_path, fake, names=NAMES, step_s=20.0, listen="127.0.0.1", **more):
    (tmp_path / "run").mkdir(exist_ok=True)
    wanted = rounds.Wanted(str(tmp_path / "run"), 2, "4711", listen=listen, step_s=step_s, options=("--cpu-bind=none",))
    told = []
    found = rounds.on_nodes(wanted, names, Seen(), ask, fake | more, told.append)
    return {check.name: check for check in found.checks}, found.rows, told


def test_every_node_of_a_fit_job_is_ok_and_nothing_is_left(tmp_path, fake):
    found, rows, told = look(tmp_path, fake)
    assert {name: check.state for name, check in found.items()} == dict.fromkeys(found, "ok"), found
    assert list(found) == [
        "nodes", "nodes-connect", "nodes-folder", "nodes-packages", "nodes-python", "nodes-clock", "nodes-munge",
        "nodes-tmp", "nodes-create", "nodes-lock", "nodes-sight",
    ]  # fmt: skip
    assert [row.node for row in rows] == list(NAMES)
    assert all(row.clock.bound < 5 and row.tmp_free > 0 and row.munge == "" for row in rows)
    assert rows[0].supervisor == str(ROOT / "supervisor")
    assert told[0] == "0 of 3 nodes have answered"
    assert told[-1] == "3 of 3 nodes have answered"
    assert list((tmp_path / "run").iterdir()) == []
    words = (tmp_path / "words").read_text()
    assert "--jobid=4711 --ntasks=3 --distribution=arbitrary --overlap" in words
    assert "--cpu-bind=none --gres=none" in words


def test_a_node_that_can_not_be_reached_is_named_with_what_srun_said(tmp_path, fake):
    found, rows, _ = look(tmp_path, fake, step_s=3.0, RELIGHT_FAKE_DEAD="n002")
    assert (found["nodes"].state, "1 node of 3 did not answer: n002" in found["nodes"].seen) == ("bad", True)
    assert "Communication connection failure" in found["nodes"].seen
    assert [row.answered for row in rows] == [True, False, True]
    assert {check.state for name, check in found.items() if name != "nodes"} == {"ok"}


def test_where_srun_ends_the_step_for_one_node_the_others_are_tried_again(tmp_path, fake):
    """As 22.05 does when it can't launch a task."""
    text = SRUN.replace(
        "\nwait\n",
        '\n[ -z "$RELIGHT_FAKE_DEAD" ] || [ "$(wc -l <"$SLURM_HOSTFILE")" = 2 ] || { sleep 0.5; kill $(cat "$RELIGHT_FAKE/pids"); }\nwait\n',
    )
    assert text != SRUN
    (tmp_path / "bin" / "srun").write_text(text)
    found, rows, told = look(tmp_path, fake, RELIGHT_FAKE_DEAD="n002")
    assert {name: check.state for name, check in found.items() if check.state != "ok"} == {"nodes": "bad"}
    assert "n002; srun: Task launch for 1.0 failed on node n002" in found["nodes"].seen
    assert [row.connected for row in rows] == [True, False, True]
    assert "once more, with the 2 nodes that have answered" in told


def test_a_step_that_never_ends_is_ended_at_the_deadline(tmp_path, fake):
    found, _, _ = look(tmp_path, fake, step_s=2.0, RELIGHT_FAKE_DEAD="n003", RELIGHT_FAKE_HANGS="yes")
    assert found["nodes"].state == "bad"
    pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
    assert not [
        pid
        for pid in pids
        if os.path.exists(f"/proc/{pid}") and b"probe.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def test_where_no_node_answers_nothing_else_is_said(tmp_path, fake):
    found, rows, _ = look(tmp_path, fake, RELIGHT_FAKE_DEAD="n001 n002 n003")
    assert [(check.name, check.state) for check in found.values()] == [("nodes", "unknown")]
    assert not any(row.answered for row in rows)


def test_without_srun_it_is_unknown(tmp_path, fake):
    (tmp_path / "bin" / "srun").unlink()
    found, _, _ = look(tmp_path, fake | {"PATH": f"{tmp_path}/bin"})
    assert (list(found), found["nodes"].state) == (["nodes"], "unknown")


def test_a_node_with_another_supervisor_is_named(tmp_path, fake):
    (tmp_path / "other" / "supervisor").mkdir(parents=True)
    (tmp_path / "other" / "supervisor" / "__init__.py").write_text("")
    (tmp_path / "path-n002").write_text(f"{tmp_path}/other:{ROOT}")
    found, _, _ = look(tmp_path, fake)
    check = found["nodes-packages"]
    assert (check.state, check.seen.startswith(f"n002: supervisor comes from {tmp_path}/other/supervisor")) == (
        "bad",
        True,
    )


def test_nodes_that_cannot_connect_are_named_and_still_heard(tmp_path, fake):
    found, rows, _ = look(tmp_path, fake, listen="127.0.0.2.invalid")
    assert (found["nodes-connect"].state, found["nodes"].state) == ("bad", "ok")
    assert found["nodes-clock"].state == "unknown"
    assert "nodes-create" not in found
    assert all(row.answered and not row.connected for row in rows)


# --- lies ----------------------------------------------------------------------------------------------------------

OURS = Ours("/site/supervisor", "d1", (3, 11, 7), "f00d")


def told(node, **fields):
    return {
        "node": node, "python": [3, 11, 7], "executable": "/site/bin/python", "home": {"supervisor": "/site/supervisor"},
        "digest": "d1", "nonce": "f00d", "folder": "", "tmp_free": 1 << 40, "credential": "x", "munge": "",
    } | fields  # fmt: skip


def heard(**fields):
    """Three nodes, the second of which is odd."""
    tried = Tried(
        peers=NAMES,
        clocks=dict.fromkeys(NAMES, Clock(0.001, 0.002)),
        wins=(("n001",), ("n003",)),
        sight=dict.fromkeys(NAMES, 0.01),
    )
    return Heard(reports={node: told(node, **(fields if node == "n002" else {})) for node in NAMES}, tried=tried)


def judged(one, munge=None):
    rows = nodes.rows(NAMES, one, OURS, dict.fromkeys(NAMES, "") | (munge or {}))
    return {check.name: check for check in nodes.judge(rows, one, OURS, deadline_s=60, munge=True)}


def test_three_good_nodes_are_ok():
    assert {check.state for check in judged(heard()).values()} == {"ok"}


@pytest.mark.parametrize(
    ("fields", "name", "state"),
    [
        ({"nonce": "0ld"}, "nodes-folder", "bad"),
        ({"nonce": "", "folder": "No such file or directory"}, "nodes-folder", "bad"),
        ({"digest": "d2"}, "nodes-packages", "bad"),
        ({"home": {"supervisor": None}}, "nodes-packages", "bad"),
        ({"home": "somewhere"}, "nodes-packages", "bad"),
        ({"digest": 7}, "nodes-packages", "unknown"),
        ({"python": [3, 12, 1]}, "nodes-python", "warn"),
        ({"python": "3.11.7"}, "nodes-python", "unknown"),
        ({"tmp_free": 1 << 20}, "nodes-tmp", "bad"),
        ({"tmp_free": None}, "nodes-tmp", "unknown"),
        ({"tmp_free": "much"}, "nodes-tmp", "unknown"),
    ],
)
def test_one_odd_node_is_named_by_its_own_check(fields, name, state):
    found = judged(heard(**fields))
    assert {n: check.state for n, check in found.items() if check.state != "ok"} == {name: state}
    assert found[name].right
    assert "n002" in found[name].seen or state == "unknown"


@pytest.mark.parametrize(
    ("clock", "state"),
    [
        (Clock(0.6, 0.2), "ok"),
        (Clock(-0.8, 0.2), "warn"),
        (Clock(151.0, 0.5), "bad"),
        (Clock(200.0, 199.0), "warn"),
        (None, "unknown"),
    ],
)
def test_a_clock_is_judged_by_what_is_certain_of_it(clock, state):
    one = heard()
    one.tried.clocks["n002"] = clock
    if clock is None:
        del one.tried.clocks["n002"]
    check = judged(one)["nodes-clock"]
    assert (check.state, "n002" in check.seen) == (state, True)


def test_credentials_that_are_not_taken_are_told():
    assert judged(heard(), {"n002": "unmunge says: Expired credential (15)"})["nodes-munge"].state == "bad"
    one = heard()
    rows = nodes.rows(NAMES, one, OURS, {"n001": ""})
    assert nodes.munged(rows).state == "unknown"


def test_a_lost_exclusion_between_nodes_is_bad():
    one = heard()
    one.tried.wins = (("n001", "n003"),)
    check = judged(one)["nodes-create"]
    assert (check.state, "n001, n003 all got the same one" in check.seen) == ("bad", True)
    one = replace(heard(), tried=replace(heard().tried, got_held=["n003"]))
    assert judged(one)["nodes-lock"].state == "bad"


def test_reports_are_believed_once_a_node_and_of_known_nodes_only(tmp_path, fake):
    lines = [
        "a banner", f"{probe.REPORT}no json", f"{probe.REPORT}[1]", f"{probe.REPORT}{json.dumps(told('n666'))}",
        f"{probe.REPORT}{json.dumps(told('n001'))}", f"{probe.REPORT}{json.dumps(told('n001', digest='late'))}",
        f"{probe.REPORT}{json.dumps({'node': 'n002', 'link': 'Connection refused'})}", probe.REPORT + "x" * 100_000,
        f"{probe.REPORT}{json.dumps(told('n003'))}",
    ]  # fmt: skip
    (tmp_path / "lines").write_text("\n".join(lines) + "\n")
    (tmp_path / "bin" / "srun").write_text(f"#!/bin/sh\ncat {tmp_path}/lines\n")
    place = step.Place("4711", NAMES, str(tmp_path), "127.0.0.1")
    got = asyncio.run(step.run(place, fake, 20, lambda _: None))
    assert set(got.reports) == {"n001", "n003"}
    assert got.reports["n001"]["digest"] == "d1"
    assert got.links == {"n002": "Connection refused"}
    assert got.tried.peers == ()


def test_what_srun_says_without_end_is_cut(tmp_path, fake):
    (tmp_path / "bin" / "srun").write_text("#!/bin/sh\nyes 'srun: error: no' | head -c 300000 >&2\n")
    place = step.Place("4711", NAMES, str(tmp_path), "127.0.0.1")
    got = asyncio.run(step.run(place, fake, 20, lambda _: None))
    assert len(got.said) == 65_536
    assert got.errors[-1] == "no"


# --- this machine ----------------------------------------------------------------------------------------------------


def test_a_machine_that_stands_still_is_unknown_and_not_waited_for(tmp_path):
    import threading

    never = threading.Event()
    late = Late()
    found, seen = rounds.here(rounds.Wanted(str(tmp_path), 1, here_s=0.1), never.wait, late, lambda _: None)
    never.set()
    assert (seen, late.any) == (None, True)
    assert [(check.name, check.state) for check in found.checks] == [("machine", "unknown")]


def test_the_address_is_that_of_the_node_where_we_are_one():
    assert rounds._address(ask, "n001") == "127.0.0.1"
    assert rounds._address(ask, "n009") == os.uname().nodename
    assert rounds._address(lambda *_: Answer(1, "", "no"), "n001") == os.uname().nodename
    assert rounds._address(ask, "") == os.uname().nodename


def test_the_probe_needs_nothing_but_the_standard_library():
    import subprocess

    env = {
        "RELIGHT_DOCTOR": json.dumps(
            {"report": True, "folder": "/", "munge": [], "deadline_s": 5, "host": "127.0.0.1", "port": 1, "token": ""}
        )
    }
    done = subprocess.run(
        [sys.executable, "-I", "-S", probe.__file__], env=env, capture_output=True, text=True, check=False
    )
    first, last = (json.loads(line.removeprefix(probe.REPORT)) for line in done.stdout.splitlines())
    assert (done.returncode, done.stderr) == (1, "")
    assert first["home"]["supervisor"] is None
    assert "refused" in last["link"]
