"""The cloud port: one contract, held by every door."""
