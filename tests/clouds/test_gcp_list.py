"""Lists: every page, every zone that did not answer, and nothing taken for whole that is not."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.clouds.gcp_client import fingerprint
from ledger.clouds.values import Listing
from tests.clouds.gce_script import ID, PROJECT, Answer, Script, Step, cloud, page, refusal, resource

ZONE = "us-central1-a"
SECOND = resource(id="2", name="second")
THIRD = resource(id="3", name="third")


def told(*steps: Step) -> Any:
    script = Script(*steps)
    listing = cloud(script).list_all(timeout=9)
    assert script.steps == []
    assert all("returnPartialSuccess=true" in str(request.url) for request in script.asked)
    return listing


def shown(listing: Any) -> tuple[list[str], bool, tuple[str, ...]]:
    assert isinstance(listing, Listing), listing
    return [seen.machine.rpartition("/")[2] for seen in listing.machines], listing.complete, listing.unreachable


UNREACHABLE = {"warning": {"code": "UNREACHABLE", "message": "m"}}
EMPTY = {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "m"}}
ROWS: dict[str, tuple[list[Step], tuple[list[str], bool, tuple[str, ...]]]] = {
    "one page": ([page(resource(), SECOND)], ([ID, "2"], True, ())),
    "nothing there": ([page(items={f"zones/{ZONE}": EMPTY})], ([], True, ())),
    "no zones at all": ([page(items={})], ([], True, ())),
    "two pages": ([page(resource(), nextPageToken="t"), page(SECOND)], ([ID, "2"], True, ())),
    "an instance on two pages": ([page(resource(), nextPageToken="t"), page(resource(), THIRD)], ([ID, "3"], True, ())),
    "unreachable, told on the first of two pages": (
        [page(resource(), nextPageToken="t", unreachables=["projects/p/zones/x"]), page(SECOND)],
        ([ID, "2"], False, ("x",)),
    ),
    "unreachable, told on the last page": (
        [page(resource(), unreachables=["zones/x", "https://h/zones/y"])],
        ([ID], False, ("x", "y")),
    ),
    "a zone that warns": ([page(items={"zones/x": UNREACHABLE})], ([], False, ("x",))),
    "a list that warns": ([page(resource(), warning=UNREACHABLE["warning"])], ([ID], False, ("UNREACHABLE",))),
    "a second page that fails": (
        [page(resource(), nextPageToken="t"), refusal(500, "internalError")],
        ([ID], False, ("page 2: http_500",)),
    ),
    "a second page that is malformed": (
        [page(resource(), nextPageToken="t"), Answer(200, b"<html>")],
        ([ID], False, ("page 2: malformed",)),
    ),
    "a second page of another project": (
        [page(resource(), nextPageToken="t"), page(SECOND, project="other")],
        ([ID], False, ("page 2: malformed",)),
    ),
    "a page that comes again": (
        [page(resource(), nextPageToken="t"), page(SECOND, nextPageToken="t")],
        ([ID, "2"], False, ("page 2: malformed",)),
    ),
    "an instance without an id": (
        [page(resource(id="0"), SECOND)],
        (["2"], False, ("an instance that could not be read",)),
    ),
    "a status that nobody knows": ([page(resource(status="SOME_FUTURE_STATUS"))], ([ID], True, ())),
    "fields that nobody knows": ([page(resource(newField={"a": [1]}))], ([ID], True, ())),
}


@pytest.mark.parametrize("row", ROWS)
def test_a_list(row: str) -> None:
    steps, expected = ROWS[row]
    listing = told(*steps)
    assert shown(listing) == expected
    assert listing.account == PROJECT


def test_what_a_list_says_of_itself() -> None:
    listing = told(page(resource(status="SOME_FUTURE_STATUS", creationTimestamp="yesterday", labels={"ledger": "l"})))
    assert listing.server_time == 1_784_365_200_000_000
    assert len(listing.fingerprint) == 16
    seen = listing.machines[0]
    assert (seen.status, seen.created_at, seen.marker) == ("SOME_FUTURE_STATUS", None, None)
    other = told(page(project="other"))
    assert (other.account, other.complete, other.machines) == ("other", True, ())


@pytest.mark.parametrize(
    ("changes", "ports"),
    [
        ({}, "198.51.100.7:22"),
        ({"networkInterfaces": [{"networkIP": "10.0.0.2"}]}, "10.0.0.2:22"),
        ({"networkInterfaces": []}, None),
        ({"status": "STAGING"}, None),
    ],
)
def test_where_ssh_reaches_an_instance(changes: dict[str, Any], ports: str | None) -> None:
    assert told(page(resource(**changes))).machines[0].ports == ports


class Named:
    service_account_email = "default"
    client_id = "c"

    def __init__(self, **known: str) -> None:
        self.__dict__.update(known)


def test_a_fingerprint_tells_accounts_apart_and_nothing_of_their_keys() -> None:
    robot = fingerprint(Named(service_account_email="robot@p.iam", token="secret"))
    assert robot == fingerprint(Named(service_account_email="robot@p.iam", token="another"))
    assert robot != fingerprint(Named(service_account_email="other@p.iam"))
    person = fingerprint(Named(refresh_token="r1"))
    assert person != fingerprint(Named(refresh_token="r2"))
    assert "r1" not in person


def test_a_server_that_does_not_know_of_partial_success_is_asked_without_it() -> None:
    unknown = refusal(400, "badRequest", 'Unknown name "returnPartialSuccess": Cannot bind query parameter.')
    script = Script(unknown, page(resource(), nextPageToken="t"), page(SECOND), page())
    gce = cloud(script)
    assert shown(gce.list_all(timeout=9)) == ([ID, "2"], True, ())
    assert shown(gce.list_all(timeout=9)) == ([], True, ())
    assert ["returnPartialSuccess" in str(request.url) for request in script.asked] == [True, False, False, False]
