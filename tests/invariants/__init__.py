"""Tests of ledger/invariants."""
