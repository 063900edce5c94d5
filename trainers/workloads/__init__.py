"""Built-in workloads; each uses the same seam as a user's own."""
