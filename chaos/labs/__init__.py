"""The exercises from which this project started: each its own command, each reproducing its published figures."""
