"""Is this installation, this machine, this cluster and this job fit for a run? Looked at, and judged, without changing anything."""
