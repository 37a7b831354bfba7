"""Reading a checkpoint without trust and without torch: what lies there, and may it be used?

`child.py` and all that it imports is standard library only: it runs in a bare interpreter with little memory.
"""
