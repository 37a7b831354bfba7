from supervisor.checkpoints.archive.archive import Archive, open_archive, recover_record

__all__ = ["Archive", "open_archive", "recover_record"]
