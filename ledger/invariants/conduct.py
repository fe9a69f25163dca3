"""placeholder"""

from typing import Any

from ledger.log.connection import Connection
from ledger.policy import Policy


def judge(connection: Connection, first: int, policy: Policy) -> list[dict[str, Any]]:
    return []
