"""Tests of ledger/state."""
