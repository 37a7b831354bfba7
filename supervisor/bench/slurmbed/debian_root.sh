#!/bin/sh
# Makes a directory with another Debian and its Slurm in it, so that the tests can run on that version:
#   sudo sh debian_root.sh SUITE DIRECTORY [MIRROR]      trixie has Slurm 24.11, forky 26.05
#   RELIGHT_SLURM_ROOT=DIRECTORY python -m pytest tests/contract/test_slurm_commands.py
#   sudo sh debian_root.sh --unmount DIRECTORY           before the directory is removed: /tmp is mounted in it
# Needs root, debootstrap, about 0.9 GB and two minutes.
set -eu
if [ "$1" = --unmount ]; then
  for there in tmp dev sys proc; do
    while mountpoint -q "$2/$there"; do umount -l "$2/$there"; done
  done
  exit
fi
suite=$1 root=$2 mirror=${3:-}
if [ ! -x "$root/usr/sbin/slurmctld" ]; then
  script=/usr/share/debootstrap/scripts/$suite
  # A debootstrap that is older than the suite does not know its name; all of them follow sid.
  [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid
  debootstrap --variant=minbase "$suite" "$root" "$mirror" "$script"
  cp /etc/resolv.conf /etc/hosts "$root/etc/"
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # nothing is started by its installation
  chmod 755 "$root/usr/sbin/policy-rc.d"
  chroot "$root" apt-get -o Acquire::Check-Valid-Until=false update -q # a mirror may lag behind
  DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get install -y -q --no-install-recommends \
    slurmctld slurmd slurm-client munge
fi
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
mountpoint -q "$root/sys" || mount --bind /sys "$root/sys"
mountpoint -q "$root/dev" || mount --bind /dev "$root/dev"
mountpoint -q "$root/tmp" || mount --bind /tmp "$root/tmp"
chroot "$root" slurmctld -V
