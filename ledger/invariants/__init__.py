"""The invariants: what must never be, each its id, its words and its SQL; and the audit that runs them."""
