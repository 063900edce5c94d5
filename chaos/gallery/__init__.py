"""The gallery: recovery bugs that real systems shipped, planted in real runs, to prove that the auditor sees them."""
