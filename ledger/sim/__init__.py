"""Rehearsals: scenarios, the simulated clouds and their door, virtual time, and the judge."""
