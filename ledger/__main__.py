"""`python -m ledger`: the command line."""

from ledger.cli.main import main

main()
