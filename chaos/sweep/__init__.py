"""`killpoint sweep`: one trial for each passage of a kill point; see `command.py`."""
