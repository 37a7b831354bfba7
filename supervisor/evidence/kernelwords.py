"""Words with which a kernel's messages begin: its subsystems, drivers and devices. They stand where hosts do. Pure."""

from __future__ import annotations

import re
from typing import Final

_SUBSYSTEMS: Final = (
    "acpi aer apei audit bar block bluetooth bpf bus btrfs call ceph cgroup cifs clocksource cma code corrected cpuidle"
    " cpufreq cxl dca dev device devlink dma dmar dpc drm driver edac efi ext4-fs ext4 fat-fs fbcon fuse ghes gpio hardware"
    " hid hwmon i2c iommu input io ioatdma ipmi irq jbd2 kernel kvm lnet lneterror link lustre lustreerror mce md memory"
    " mmc mmfs modules net netdev nfs nmi numa nvlink nvme nvme-fabrics nvrm nvswitch oom-kill out overlayfs panic pci"
    " pcieport pciehp perf port power powercap printk ptp random ras rcu rdma rpc rtc sched scsi sd sdhci soft"
    " selinux serial smp soft sunrpc systemd tcp thermal thunderbolt traps tpm tty uncorrected usb usbcore vfio vfs virtio"
    " vmd watchdog workqueue x86 xfs xhci xhci_hcd zram infiniband"
)
"""Subsystems, buses, device classes and first words of messages (`Memory failure: `, `Hardware name: `). No host is called so."""

_DRIVERS: Final = (
    "ahci amdgpu amdkfd ast be2net bnxt_en bnxt_re bonding cdc_ether cnic csiostor cxgb4 cxi_core cxi_ss1 cxi_user cxi_eth"
    " e1000 e1000e efa ena fm10k gdrdrv habanalabs hfi1 hns3 hpsa i40e i915 iavf ib_core ib_ipoib ib_mad ib_uverbs ice idxd"
    " igb igc intel_rapl ionic ipmi_si irdma isst ixgbe ixgbevf kfd knem ll_ost lpfc megaraid_sas mlx4_core mlx4_en mlx4_ib"
    " mlx5_core mlx5_ib mlx5_fpga mpi3mr mpt3sas neuron nfit nouveau nvidia nvidia-fs nvidia-modeset nvidia-nvlink"
    " nvidia-nvswitch nvidia-uvm nvidia-peermem nvidia_fs ocrdma pmt_telemetry qed qede qedr qla2xxx rdma_rxe sfc siw skx_edac"
    " smartpqi ses tg3 vmw_pvscsi vmxnet3 xe xpmem"
)
"""Drivers as the kernel names them before their devices: `mlx5_core 0000:5e:00.0: `, `ena 0000:00:06.0 ens32: `."""

_DEVICES: Final = re.compile(
    r"nvme\d+(n\d+(p\d+)?)?|(eth|ens|eno|enp|enx|wlp|ib|bond|veth|docker|virbr|cxi|hsn|rdmap|rocep|ibp|mlx[45]_|hfi1_|bnxt_re"
    r"|irdma|qedr|efa_?)\d\w*|md\d{2,3}|dm-\d+|loop\d+|sd[a-z]{1,2}\d*|sr\d|CPU\d+|ata\d+(\.\d+)?|usb\d+|ttyS\d+|hwmon\d+|card\d"
    r"|IPv[46]|nvidia-nvswitch\d+"
)
"""Devices of a machine: disks, links, cores."""


_WORDS: Final = frozenset(f"{_SUBSYSTEMS} {_DRIVERS}".split())


def is_kernels(word: str) -> bool:
    """Is this a word of a kernel's messages, which no host is called by?"""
    return word.lower() in _WORDS or _DEVICES.fullmatch(word) is not None
