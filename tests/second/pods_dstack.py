"""RunPod by dstack's own client, whichever API its version speaks: `describe` or `delete` ID, `create` NAME, `key`."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from dstack._internal.core.backends.runpod import api_client  # type: ignore[import-not-found]
from dstack._internal.core.errors import BackendError  # type: ignore[import-not-found]


def main(verb: str, what: str = "") -> Any:
    """Do it, and give what came of it; None: there is no such pod."""
    base = os.environ["RUNPOD_API_BASE_URL"]
    old = hasattr(api_client, "API_URL")
    for name, path in {"API_URL": "/graphql", "API_GRAPHQL_URL": "/graphql", "API_V2_URL": "/v2"}.items():
        if hasattr(api_client, name):
            setattr(api_client, name, base + path)
    client = api_client.RunpodApiClient(os.environ["RUNPOD_API_KEY"])
    if verb == "key":
        return client.validate_api_key()
    if verb == "create":
        asked = {"name": what, "image_name": "an/image", "gpu_type_id": "NVIDIA L4", "container_disk_in_gb": 20}
        if old:
            return client.create_pod(**asked, cloud_type="SECURE", env={"A": "b"})["id"]
        return client.create_pod(**asked, cloud="SECURE", gpu_count=1, entrypoint=[], cmd=[], env={"A": "b"})["id"]
    if verb == "describe":
        pod = client.get_pod(what)
        if pod is None:
            return None
        return {"id": pod["id"], "name": pod["name"], "status": pod.get("desiredStatus") or pod["status"]}
    try:
        done = client.terminate_pod(what)
    except BackendError as error:
        if old and "Not Found" in str(error):
            return None
        raise
    return None if done is False else "deleted"


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
