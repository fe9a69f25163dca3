"""The demonstration: two incidents that really happened, in a temporary ledger on a virtual clock."""
