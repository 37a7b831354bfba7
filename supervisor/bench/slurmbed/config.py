"""The files of a Slurm of many nodes on one machine. Each line is there because something failed without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """What kind of cluster. Times in seconds; `extra` are more lines of slurm.conf. Sizes are what nodes pretend to have.

    `switches` nodes hang on each leaf switch; 0: Slurm knows no topology. `asleep` nodes more are in slurm.conf, and nobody starts
    them.
    """

    nodes: int = 5
    gpus: int = 2
    cpus: int = 16
    memory_mb: int = 64000
    slurmd_timeout_s: int = 10
    message_timeout_s: int = 10
    kill_wait_s: int = 2
    switches: int = 0
    asleep: int = 0
    extra: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """n001, n002 and so on."""
        return tuple(f"n{number:03d}" for number in range(1, self.nodes + 1))

    @property
    def configured(self) -> tuple[str, ...]:
        """Those too that nobody starts."""
        return tuple(f"n{number:03d}" for number in range(1, self.nodes + self.asleep + 1))


def slurm_conf(base: str, host: str, shape: Shape, controller_port: int, node_ports: Sequence[int]) -> str:
    """slurm.conf of the cluster in `base`. Everything listens on loopback only."""
    lines = [
        "ClusterName=bed",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={controller_port}",
        "SlurmUser=slurm",
        "AuthType=auth/munge",
        # A requeued job waits cred_expire + 1 s, by default 121.
        f"AuthInfo=socket={base}/munge/munge.socket,cred_expire=10",
        # Else accounting looks for a munge of the system, for ever.
        f"AccountingStoragePass={base}/munge/munge.socket",
        "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",
        f"StateSaveLocation={base}/state",
        f"SlurmctldPidFile={base}/run/slurmctld.pid",
        f"SlurmctldLogFile={base}/log/slurmctld.log",
        f"SlurmdPidFile={base}/run/slurmd.%n.pid",
        f"SlurmdLogFile={base}/log/slurmd.%n.log",
        f"SlurmdSpoolDir={base}/spool/%n",
        "SlurmctldDebug=verbose",
        "SlurmdDebug=verbose",
        # No control groups, no pinning: the nodes share one machine.
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none",
        "MpiDefault=none",
        "MailProg=/bin/true",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU_Memory",
        "SlurmdParameters=config_overrides",
        "GresTypes=gpu",
        "SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0",
        # As a careful site has it: who was declared down stays down until somebody looks.
        "ReturnToService=1",
        f"SlurmdTimeout={shape.slurmd_timeout_s}",
        f"MessageTimeout={shape.message_timeout_s}",
        f"KillWait={shape.kill_wait_s}",
        "InactiveLimit=0",
        "MinJobAge=300",
        "JobRequeue=1",
        *shape.extra,
        f"NodeName=DEFAULT CPUs={shape.cpus} RealMemory={shape.memory_mb} Gres=gpu:{shape.gpus} State=UNKNOWN",
    ]
    lines += [
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
        for name, port in zip(shape.configured, node_ports, strict=True)
    ]
    lines += ["TopologyPlugin=topology/tree"] if shape.switches else []
    lines += ["PartitionName=train Nodes=ALL Default=YES MaxTime=INFINITE State=UP"]
    return "\n".join(lines) + "\n"


def gres_conf(base: str, shape: Shape) -> str:
    """gres.conf: devices that are clones of /dev/null. `Count=` alone would register none."""
    return (
        f"Name=gpu File={base}/dev/nvidia[0-{shape.gpus - 1}]\n"
        if shape.gpus > 1
        else f"Name=gpu File={base}/dev/nvidia0\n"
    )


def topology_conf(shape: Shape) -> str:
    """topology.conf: leaf switches of `shape.switches` nodes each under one switch. Neighbours by name hang on different leaves, so
    that a spare is seldom of the right leaf by chance.
    """
    count = -(-shape.nodes // shape.switches)
    leaves = [shape.names[at::count] for at in range(count)]
    lines = [f"SwitchName=leaf{number} Nodes={','.join(leaf)}" for number, leaf in enumerate(leaves)]
    lines.append(f"SwitchName=top Switches={','.join(f'leaf{number}' for number in range(len(leaves)))}")
    return "\n".join(lines) + "\n"
