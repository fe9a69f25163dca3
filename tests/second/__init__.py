"""Cloud clients that are not ours, each a program, held against the simulated clouds: `scripts/second_clients`."""
