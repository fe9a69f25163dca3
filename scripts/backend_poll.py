#!/usr/bin/env python3
"""One tick of one run, one JSON line: `backend_poll.py --issue N [--handle-file PATH]`. See `ledger poll`."""

from __future__ import annotations

import json
import sys

import checkout


def main() -> int:
    """The line, whatever happens: an empty stdout would be read as a stall of unknown reason."""
    why = checkout.enter()
    if why is not None:
        from ledger.poller.line import stalled

        print(json.dumps(stalled("ledger_unavailable", why)))
        return 0
    from ledger.cli.legacy import poll_main

    return poll_main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
