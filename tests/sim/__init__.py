"""Tests of the simulation: the language, the world, the door, virtual time, the judge, the rehearsal."""
