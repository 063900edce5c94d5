"""`killpoint check`: the most informative kills that a time budget allows, as a merge gate; see `command.py`."""
