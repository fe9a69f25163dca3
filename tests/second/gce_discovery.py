"""GCE by google-api-python-client, made of the discovery document: `list`, `describe` or `delete` NAME ZONE."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from google.auth.credentials import AnonymousCredentials
from googleapiclient.discovery import build  # type: ignore[import-untyped]
from googleapiclient.errors import HttpError  # type: ignore[import-untyped]


def told(instance: dict[str, Any]) -> dict[str, str]:
    """What is compared of an instance."""
    zone = instance["zone"].rpartition("/")[2]
    return {"id": instance["id"], "name": instance["name"], "zone": zone, "status": instance["status"]}


def main(verb: str, name: str = "", zone: str = "") -> Any:
    """Do it, and give what came of it; None: there is no such instance."""
    project = os.environ["GCP_PROJECT"]
    options = {"api_endpoint": f"{os.environ['LEDGER_GCE_ENDPOINT']}/compute/v1/"}
    compute = build("compute", "v1", credentials=AnonymousCredentials(), client_options=options, cache_discovery=False)
    where = {"project": project, "zone": zone, "instance": name}
    if verb == "list":
        found, request = [], compute.instances().aggregatedList(project=project, maxResults=2)
        while request is not None:
            page = request.execute()
            found += [told(row) for scope in page["items"].values() for row in scope.get("instances", ())]
            request = compute.instances().aggregatedList_next(request, page)
        return found
    try:
        if verb == "describe":
            return told(compute.instances().get(**where).execute())
        operation = compute.instances().delete(**where).execute()
    except HttpError as error:
        if error.resp.status == 404:
            return None
        raise
    while operation["status"] != "DONE":
        time.sleep(1)
        operation = compute.zoneOperations().get(project=project, zone=zone, operation=operation["name"]).execute()
    return operation.get("error", "deleted")


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
