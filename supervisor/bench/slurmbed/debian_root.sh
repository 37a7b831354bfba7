#!/bin/sh
# Makes a directory with another Debian and its Slurm in it, so that the tests can run on that version:
#   sudo sh debian_root.sh SUITE DIRECTORY [MIRROR]      trixie has Slurm 24.11, forky 26.05
#   RELIGHT_SLURM_ROOT=DIRECTORY python -m pytest tests/contract/test_slurm_commands.py
#   sudo sh debian_root.sh --share DIRECTORY PATH...     lets its nodes run this machine's Python: the environment's folder and
#                                                        that of the interpreter; then supervised runs can be tried there too
#   sudo sh debian_root.sh --unmount DIRECTORY           before the directory is removed: /tmp is mounted in it
# Needs root, debootstrap, about 0.9 GB and two minutes.
set -eu
if [ "$1" = --unmount ]; then
  awk -v below="${2:?}/" 'index($2, below) == 1 { print $2 }' /proc/mounts | sort -r | while read -r there; do
    umount -l "$there"
  done
  exit
fi
if [ "$1" = --share ]; then
  root=$2
  shift 2
  # What an interpreter is linked with.
  DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get install -y -q --no-install-recommends \
    libbz2-1.0 libffi8 liblzma5 libsqlite3-0 libssl3t64 libstdc++6 zlib1g
  for path; do
    mkdir -p "$root$path"
    mountpoint -q "$root$path" || mount --bind "$path" "$root$path"
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
