"""One tick: observe, decide, act; and the commands that a person gives a run. The thin edge around `ledger.decide`."""
