"""What `scripts/bench.py` measures: floors, peers and the ledger side by side, on a log that looks like a real one."""
