"""`killpoint report`: runs, sweeps and interval measurements as one self-contained page, as pictures, and as tables."""
