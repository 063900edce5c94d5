"""Comparing two runs: where they part first, in what, by how much, and which missing piece explains it."""
