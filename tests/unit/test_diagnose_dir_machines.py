"""What logs of machines say, beside those of a job: whose line it is, and whether it is a cause. Made up here."""

from __future__ import annotations

import json

import pytest
from logcases import EACH, NODES, WORLD, diagnose, head, node_of, steps, timeouts

from supervisor.evidence.kernelwords import is_kernels
from supervisor.evidence.labels import read_label
from supervisor.evidence.launchlines import read_command

XID = "NVRM: Xid (PCI:0000:{bus}:00): {code}, pid={pid}, name=python, what follows"


def nccl(nodes=NODES):
    """NCCL's first words: host, process and bus of each rank, as a container numbers its processes."""
    return "".join(
        f"{node_of(r)}:{900 + r}:{900 + r} [{r % EACH}] NCCL INFO ncclCommInitRank comm 0x55 rank {r} nranks {WORLD} cudaDev {r % EACH}"
        f" nvmlDev {r % EACH} busId {16 + r % EACH:x}000 commId 0x1 - Init COMPLETE\n"
        for r in range(WORLD)
        if node_of(r) in nodes
    )


# --- the processes of a container have other numbers outside of it ----------------------------------------------------


@pytest.mark.parametrize(
    ("bus", "at", "category"),
    [("12", "10:08:00", "hardware.gpu"), ("77", "10:08:00", "hang.unknown"), ("12", "04:40:00", "hang.unknown")],
)
def test_a_fault_of_our_device_while_we_ran_is_ours_whatever_process_it_names(tmp_path, bus, at, category):
    kernel = f"[Mon May  4 {at} 2026] {XID.format(bus=bus, code=119, pid=88411)}\n"
    log = head() + nccl() + steps() + timeouts((6,))
    got = diagnose(tmp_path, {"slurm-77.out": log, "dmesg-gx-02.log": kernel})
    assert got["category"] == category
    assert got["first_error"]["rank"] == 6
    assert got["suspect_nodes"] == (["gx-02"] if category == "hardware.gpu" else [])


# --- whose line it is -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "node"),
    [
        ("2025-09-02T07:19:12,410022+00:00 infiniband rdmap113s0: The device didn't send any completion", None),
        ("2025-09-02T07:19:12,410022+00:00 somebody rdmap113s0: text", None),
        ("2025-09-02T07:19:12.410022+00:00 nvme nvme0: I/O 5 QID 3 timeout, aborting", None),
        ("2025-09-02T07:19:12.410022+00:00 Memory failure: 0x1f3a5c: Sending SIGBUS", None),
        ("2025-09-02T07:19:12.410022+00:00 gx-03 kernel: infiniband rdmap113s0: text", "gx-03"),
        ("nvme0n1: p1 p2", None),
        ("bond0: link status definitely down for interface ens3, disabling it", None),
        (
            "x1203c4s2b0n0:[Tue Apr  8 06:46:08 2025] cxi_core 0000:cb:00.0: cxi2[hsn2] CXI_EVENT_LINK_DOWN",
            "x1203c4s2b0n0",
        ),
        ("x1203c4s2b0n0: [318111.402211] mlx5_core 0000:5e:00.0: text", "x1203c4s2b0n0"),
        ("gh-31 login: [318111.402211] mlx5_core 0000:5e:00.0: text", "gh-31"),
        ("gh-31 kernel: [318111.402211] mlx5_core 0000:5e:00.0: text", "gh-31"),
        ("nid002118.cluster kernel: [Tue Apr  8 06:46:08 2025] cxi_core 0000:cb:00.0: text", "nid002118"),
    ],
)
def test_a_word_of_the_kernel_is_no_host(line, node):
    assert read_label(line).node == node


@pytest.mark.parametrize(
    "word", ["infiniband", "ena", "mlx5_core", "amdgpu", "EXT4-fs", "rdmap113s0", "nvme1n1p1", "CPU34", "eth0"]
)
def test_words_of_kernels(word):
    assert is_kernels(word)


@pytest.mark.parametrize(
    "name", ["gx-01", "x1203c4s2b0n0", "ip-10-0-0-7", "cpu12", "gpu3", "ibn-48", "nid002118", "titan", "eth-n1"]
)
def test_names_of_hosts_are_no_words_of_kernels(name):
    assert not is_kernels(name)


def test_the_file_names_the_machine_whose_kernel_speaks(tmp_path):
    files = {f"gx-{slot + 1:02d}.out": nccl((NODES[slot],)) + steps() for slot in range(4)}
    files["dmesg-gx-03.txt"] = (
        "2026-05-04T10:05:20,410022+00:00 infiniband rdmap113s0: The device didn't send any completion for admin cmd CREATE_AH(8) status 0\n"
    )
    got = diagnose(tmp_path, files)
    assert (got["category"], got["first_error"]["node"], got["suspect_nodes"]) == (
        "hardware.network",
        "gx-03",
        ["gx-03"],
    )


@pytest.mark.parametrize(
    "prefix",
    ["{node}:[Mon May  4 {at} 2026] ", "{node}: [Mon May  4 {at} 2026] ", "May  4 {at} {node} kernel: "],
)
def test_links_of_several_machines_in_one_console(tmp_path, prefix):
    down, up = (
        "cxi_core 0000:cb:00.0: cxi2[hsn2] CXI_EVENT_LINK_DOWN",
        "cxi_core 0000:cb:00.0: cxi2[hsn2] CXI_EVENT_LINK_UP",
    )
    said = [("gx-01", "10:03:02", down), ("gx-01", "10:03:16", up), ("gx-03", "10:05:40", down)]
    console = "".join(prefix.format(node=node, at=at) + text + "\n" for node, at, text in said)
    got = diagnose(tmp_path, {"console.log": console, "slurm-77.out": head() + steps() + timeouts(range(8, 12))})
    assert (got["category"], got["first_error"]["line"], got["suspect_nodes"]) == ("hardware.network", 3, ["gx-03"])


def test_a_console_whose_first_line_says_whose_it_is(tmp_path):
    console = "<ConMan> Console [gx-03] log opened at 2026-05-04 09:00:00 UTC.\n[ 9012.1] Kernel panic - not syncing: Fatal machine check\n"
    got = diagnose(tmp_path, {"conman.txt": console, "slurm-77.out": head() + steps() + timeouts(range(8, 12))})
    assert (got["category"], got["suspect_nodes"]) == ("hardware.host", ["gx-03"])


@pytest.mark.parametrize(
    ("prompt", "line"),
    [
        ("[ 9011.100201] mlx5_core 0000:5e:00.0: all is well", 2),
        ("[ 9011.100201] watchdog: Watchdog detected hard LOCKUP on cpu 7", 1),
    ],
)
def test_a_console_with_the_prompt_of_its_host(tmp_path, prompt, line):
    console = f"gx-03 login: {prompt}\n[ 9012.100201] Kernel panic - not syncing: Hard LOCKUP\n"
    got = diagnose(tmp_path, {"console.log": console, "slurm-77.out": head() + steps() + timeouts(range(8, 12))})
    assert (got["first_error"]["line"], got["suspect_nodes"]) == (line, ["gx-03"])


GONE = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus."


@pytest.mark.parametrize(
    "line",
    [
        "1777889140.123456 gx-03 kernel: {}",
        "Mon 2026-05-04 10:05:40 UTC gx-03 kernel: {}",
        "gx-03 | [Mon May  4 10:05:40 2026] {}",
        "gx-03 [Mon May  4 10:05:40 2026] {}",
        "[gx-03] [Mon May  4 10:05:40 2026] {}",
    ],
)
def test_whose_kernel_it_is_in_the_forms_of_collectors(tmp_path, line):
    other = line.replace("gx-03", "gx-01").format("perf: interrupt took too long") + "\n"
    log = head() + steps() + timeouts(range(8, 12))
    got = diagnose(tmp_path, {"kern.log": other + line.format(GONE) + "\n", "slurm-77.out": log})
    assert (got["category"], got["suspect_nodes"]) == ("hardware.gpu", ["gx-03"])


@pytest.mark.parametrize(
    "heading",
    [
        "==> logs/dmesg-{}.log <==",
        "---------------\n{}\n---------------",
        "===== {} =====",
        "### host: {} ###",
        "--- {}.cluster.local ---",
    ],
)
def test_a_file_with_a_part_for_each_host(tmp_path, heading):
    parts = [
        heading.format(n)
        + "\n[   12.1] all is well\n"
        + (f"[Mon May  4 10:05:40 2026] {GONE}\n" if n == "gx-03" else "")
        for n in NODES
    ]
    got = diagnose(
        tmp_path, {"all-dmesg.txt": "".join(parts), "slurm-77.out": head() + steps() + timeouts(range(8, 12))}
    )
    assert (got["category"], got["first_error"]["node"], got["suspect_nodes"]) == ("hardware.gpu", "gx-03", ["gx-03"])


@pytest.mark.parametrize("told", ["gx-01\ngx-02\ngx-03\n", "==> logs/dmesg-gx-03.log <==\n"])
def test_names_that_stand_alone_are_no_headings(tmp_path, told):
    log = told + steps() + f"[Mon May  4 10:05:40 2026] {GONE}\n"
    got = diagnose(tmp_path, {"slurm-77.out": head() + log})
    assert (got["category"], got["suspect_nodes"]) == ("hardware.gpu", [])


@pytest.mark.parametrize(
    "line",
    [
        {"asctime": "2026-05-04 10:06:30", "rank": 9, "message": "KeyError: 'labels'"},
        {"time": "2026-05-04T10:06:30Z", "host": "gx-03", "rank": 9, "msg": "KeyError: 'labels'"},
        {
            "ts": "2026-05-04T10:06:30Z",
            "global_rank": 9,
            "message": 'Traceback (most recent call last):\n  File "a.py", line 1\nKeyError: 7',
        },
        {
            "ts": "2026-05-04T10:06:30Z",
            "rank": 9,
            "message": "step failed",
            "exc_info": "Traceback (most recent call last):\n  x\nKeyError: 7",
        },
    ],
)
def test_a_logger_that_writes_json_tells_the_rank(tmp_path, line):
    got = diagnose(tmp_path, {"job.jsonl": head() + steps() + json.dumps(line) + "\n"})
    assert (got["category"], got["first_error"]["rank"], got["first_error"]["node"]) == ("software.user", 9, "gx-03")


def test_a_node_that_the_scheduler_cannot_reach(tmp_path):
    control = "[2026-05-04T10:06:30.1] error: agent/is_node_resp: node:gx-03 RPC:REQUEST_PING : Communication connection failure\n"
    got = diagnose(tmp_path, {"slurmctld.log": control, "slurm-77.out": head() + steps() + timeouts(range(8, 12))})
    assert (got["category"], got["suspect_nodes"]) == ("scheduler.nodefail", ["gx-03"])


def test_another_name_of_a_host_stands_behind_a_word(tmp_path):
    files = {}
    for slot in (0, 1, 3):
        log = f"INSTANCE i-0a11f09d5bbd000{slot}c HOST {NODES[slot]} NODEID {slot}\n{nccl((NODES[slot],))}"
        log += f"{NODES[slot]}:500:600 [1] NCCL WARN NET/OFI Request 0x7f completed with error. RC: 103. (Unresponsive receiver"
        files[f"{NODES[slot]}.out"] = log + " My host id: i-0a Peer host id: i-0a11f09d5bbd0002c)\n"
    files["gx-03.out"] = "INSTANCE i-0a11f09d5bbd0002c HOST gx-03 NODEID 2\n" + nccl(("gx-03",))
    got = diagnose(tmp_path, files)
    assert (got["category"], got["suspect_nodes"]) == ("hardware.network", ["gx-03"])


def test_a_machine_that_is_not_on_the_jobs_list_is_nobodys_fault(tmp_path):
    control = (
        "[2026-05-04T10:02:00.000] error: Node gx-99 has low real_memory size (250000 < 256000)\n"
        "[2026-05-04T10:05:30.000] _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=77 uid 20817\n"
    )
    got = diagnose(tmp_path, {"slurm-77.out": head() + steps(), "slurmctld.log": control})
    assert (got["category"], got["suspect_nodes"]) == ("scheduler.cancel", [])


# --- corrected errors -------------------------------------------------------------------------------------------------

CORRECTED = (
    "[290011.1] mce: [Hardware Error]: Machine check events logged\n[290011.2] EDAC skx MC4: 1 CE memory read error on CPU_SrcID#1\n",
    "[290011.1] mce: [Hardware Error]: Machine check events logged\n",
    "[290011.1] mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 9: 8c00004000010090\n",
    (
        "[290011.1] {1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 1\n"
        "[290011.1] {1}[Hardware Error]: It has been corrected by h/w and requires no further action\n"
        "[290011.1] {1}[Hardware Error]: event severity: corrected\n[290011.1] {1}[Hardware Error]:  Error 0, type: corrected\n"
        "[290011.1] {1}[Hardware Error]:   section_type: memory error\n"
    ),
)
PANIC = (
    "[331020.3] mce: [Hardware Error]: CPU 37: Machine Check Exception: 5 Bank 7: be00000000800400\n"
    "[331020.3] Kernel panic - not syncing: Fatal machine check\n"
)


@pytest.mark.parametrize("corrected", CORRECTED)
def test_an_error_that_was_corrected_is_no_cause_beside_one_that_was_not(tmp_path, corrected):
    control = "[2026-05-04T10:14:31.112] error: Nodes gx-03 not responding, setting DOWN\n"
    control += "[2026-05-04T10:14:31.113] Killing JobId=77 on failed node gx-03\n"
    files = {"dmesg-gx-02.txt": corrected, "serial-gx-03.txt": PANIC, "slurmctld.log": control}
    got = diagnose(tmp_path, {**files, "slurm-77.out": head() + steps() + timeouts(range(8, 12))})
    assert (got["category"], got["first_error"]["file"], got["first_error"]["line"]) == (
        "hardware.host",
        "serial-gx-03.txt",
        1,
    )
    assert got["suspect_nodes"] == ["gx-03"]


def test_an_error_that_was_not_corrected_stays_a_cause(tmp_path):
    kernel = "May  4 10:05:40 gx-03 kernel: {1}[Hardware Error]: event severity: fatal\nMay  4 10:05:40 gx-03 kernel: [Hardware Error]: Uncorrected error\n"
    got = diagnose(tmp_path, {"kern.log": kernel, "slurm-77.out": head() + steps() + timeouts(range(8, 12))})
    assert (got["category"], got["suspect_nodes"]) == ("hardware.host", ["gx-03"])


# --- launch lines -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "node", "fifth"),
    [
        ("mpirun -np 8 -H hv-1:4,hv-2:4 --tag-output -map-by slot python t.py", "hv-2", True),
        ("horovodrun -np 8 -H hv-1:4,hv-2:4 python t.py", "hv-2", True),
        ("mpirun -n 8 --host hv-1,hv-2 -npernode 4 python t.py", "hv-2", True),
        ("mpirun -np 8 -H hv-1:6,hv-2:2 python t.py", "hv-1", False),
        ("mpirun -np 8 -H hv-1:4,hv-2:4 --map-by node python t.py", "hv-2", False),
        ("mpirun -np 8 -H hv-1:4,hv-2:4 --rank-by node python t.py", "hv-2", False),
    ],
)
def test_a_launchers_command_tells_where_ranks_are(tmp_path, command, node, fifth):
    log = f"+ {command}\n" + "".join(f"[1,0]<stdout>:step {n} loss 3.1 ex/sec 8\n" for n in range(0, 900, 100))
    log += "[1,5]<stderr>:torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.1 GiB\n"
    got = diagnose(tmp_path, {"mpirun.log": log})
    assert (got["category"], got["first_error"]["rank"], got["first_error"]["node"]) == ("oom.gpu", 5, node)
    assert (read_command(command, command.split("-H ")[-1].split("--host ")[-1].split()[0]).each == 4) is fifth


def test_more_ranks_than_slots_are_placed_nowhere():
    told = read_command("mpirun -np 8 -H hv-1,hv-2 python t.py", "hv-1,hv-2")
    assert (told.hosts, told.ranks, told.each) == (("hv-1", "hv-2"), (), None)


@pytest.mark.parametrize("hosts", ["localhost:8", "a:b", "1.2.3.4:8", "a:4,"])
def test_a_list_that_names_no_hosts_tells_nothing(hosts):
    assert read_command(f"mpirun -np 8 -H {hosts} python t.py", hosts) is None


def test_a_hostfile_that_a_script_prints(tmp_path):
    log = "hv-1 slots=4\nhv-2 slots=4\n" + steps() + "[rank5]: KeyError: 'labels'\n"
    got = diagnose(tmp_path, {"job.log": log})
    assert (got["first_error"]["rank"], got["first_error"]["node"]) == (5, "hv-2")


def test_ranks_that_tell_their_node_in_brackets(tmp_path):
    files = {
        f"rank-{r}.log": f"Initializing distributed: GLOBAL_RANK: {r}, MEMBER: {r + 1}/8 (node lit-{r // 4})\nstep 8 loss 2\n"
        + ("KeyError: 'labels'\n" if r == 6 else "")
        for r in range(8)
    }
    got = diagnose(tmp_path, files)
    assert (got["category"], got["first_error"]["rank"], got["first_error"]["node"]) == ("software.user", 6, "lit-1")
