"""A real Slurm on this machine for tests and demonstrations: slurmctld, munged and a few slurmds on loopback."""
