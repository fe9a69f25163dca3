"""An event-sourced ledger of the machines on which GPU jobs run."""

__version__ = "0.1.0"
