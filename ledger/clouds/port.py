"""The cloud port: seven calls whose results are values. An adapter never raises for what a cloud can answer."""

from __future__ import annotations

from typing import Protocol

from ledger.clouds.values import (
    Absent,
    Accepted,
    CreateSpec,
    Guest,
    LaunchSpec,
    Listing,
    Probe,
    Refused,
    Seen,
    Unknown,
    Unresolved,
)


class Cloud(Protocol):
    """One account of one cloud (`backend` is `gcp` or `runpod`).

    `timeout` is in seconds: a call never takes longer, it then answers `timeout`. `send_before` is a moment on
    `Source.steady`, looked at right before sending: once it has passed nothing is sent, and the answer is
    `Refused("absent", unsent=True)`. Machines are addressed by the cloud's own id, never by name.
    """

    @property
    def backend(self) -> str:
        """`gcp` or `runpod`."""

    @property
    def account(self) -> str:
        """Whose machines these are; "" while the cloud has not told."""

    def create(self, spec: CreateSpec, *, send_before: float, timeout: float) -> Accepted | Refused | Unresolved:
        """Ask for one machine in one zone. Refused: surely nothing exists. Unresolved: nobody knows."""

    def describe(self, machine: str, *, timeout: float) -> Seen | Absent | Unknown:
        """Read one machine."""

    def list_all(self, *, timeout: float) -> Listing | Unknown:
        """Every machine of the account, all pages and zones in one answer."""

    def delete(self, machine: str, *, send_before: float, timeout: float) -> Accepted | Absent | Refused | Unresolved:
        """Ask for its end. Accepted is no sight of its absence."""

    def guest(self, machine: str, *, timeout: float) -> Guest | Unknown:
        """The guest attributes of an instance (a pod has none: Unknown)."""

    def launch(
        self, machine: str, spec: LaunchSpec, *, send_before: float, timeout: float
    ) -> Accepted | Refused | Unresolved:
        """Start the workload over SSH. Idempotent: asked twice, one process."""

    def probe(self, machine: str, spec: LaunchSpec, *, timeout: float) -> Probe | Unknown:
        """Look for the workload over SSH. A channel that broke is Unknown, not dead."""
