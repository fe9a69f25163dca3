"""Projections of the log: read-model tables (in the append's transaction) and sidecar files (after it)."""
