"""The wire door: the simulated clouds behind loopback sockets, for the real clients."""
