"""Tests of the poller: as commands, as scripts, and as real processes on a simulated world."""
