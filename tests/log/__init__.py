"""Tests of ledger/log."""
