"""One tick (observe, decide, act) and the commands that a person gives a run: the thin edge around decisions."""
