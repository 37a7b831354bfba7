"""What may happen to a run, one small file each: given, when, then (`supervisor/bench/words.py`)."""
