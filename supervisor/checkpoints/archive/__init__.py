from supervisor.checkpoints.archive.archive import Archive, open_archive

__all__ = ["Archive", "open_archive"]
