#!/usr/bin/env python3
"""`dispatch_issue.py launch|finalize --issue N ...`: one JSON object. See `ledger dispatch` and `ledger finalize`."""

from __future__ import annotations

import json
import sys

import checkout


def main() -> int:
    """The exit status that existing callers know."""
    why = checkout.enter()
    if why is not None:
        print(json.dumps({"ok": False, "reason": why}))
        return 4
    from ledger.cli.legacy import dispatch_main

    return dispatch_main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
