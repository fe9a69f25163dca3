"""Do clients that others wrote see and end what the ledger made, and does each side say the same of it?

`python -m tests.second [FOLDER]`: installs them there (a temporary folder if none is given), and prints what each said.
Exit 1 on a difference. gcloud, node and npm are used where they are on the PATH; the rest comes from PyPI.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.served import Served

HERE = Path(__file__).parent
ZONE = "us-central1-a"
NODE_CLIENT = "@google-cloud/compute@7.8.0"
DISCOVERY_CLIENT = "google-api-python-client==2.202.0"
DSTACKS = {"dstack 0.22.5 (REST v2)": "dstack==0.22.5", "dstack 0.19.30 (GraphQL)": "dstack==0.19.30"}
POLICY = ("absence_settle_seconds = 5", "max_teardowns_per_tick = 100", "done_grace_seconds = 5")
PATIENCE = 180.0


@dataclass(slots=True)
class Client:
    """A client of GCE or of RunPod as a program: its words are followed by a verb and what that needs."""

    title: str
    words: list[str]
    env: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, served: Served, *argv: str) -> Any:
        """What it prints, as a value; {"failed": ...} where it fails."""
        done = subprocess.run(
            [*self.words, *argv], env={**served.env, **self.env}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            return {"failed": (done.stderr.strip().splitlines() or ["?"])[-1]}
        return json.loads(done.stdout)


class Gcloud(Client):
    """The gcloud command itself."""

    def __call__(self, served: Served, *argv: str) -> Any:
        """As the others."""
        verb, *where = argv
        env = {
            **served.env,
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{served.env['LEDGER_GCE_ENDPOINT']}/compute/v1/",
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_CORE_PROJECT": served.project,
            "CLOUDSDK_CONFIG": str(served.folder / "gcloud"),
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        }
        words = [*self.words, "compute", "instances", verb, *where[:1], *(["--zone", where[1]] if where else [])]
        if verb == "create":
            words += ["--machine-type", "n2-standard-8"]
        done = subprocess.run([*words, "--format=json"], env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            absent = "was not found" in done.stderr
            return None if absent else {"failed": (done.stderr.strip().splitlines() or ["?"])[-1]}
        if verb == "delete":
            return "deleted"
        told = json.loads(done.stdout)
        rows = [
            {"id": r["id"], "name": r["name"], "zone": r["zone"].rpartition("/")[2], "status": r["status"]}
            for r in (told if isinstance(told, list) else [told])
        ]
        return rows if verb == "list" else rows[0]


class Report:
    """Prints what was said, and counts what is not as it should be."""

    def __init__(self) -> None:
        self.wrong = 0

    def __call__(self, who: str, what: str, said: Any, expected: Any) -> None:
        """One comparison."""
        good = said == expected
        self.wrong += not good
        print(f"{'agree ' if good else 'DIFFER'}  {who:<26} {what:<34} {_short(said)}", flush=True)
        if not good:
            print(f"        the ledger: {_short(expected)}", flush=True)


def _short(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def venv(folder: Path, name: str, *packages: str) -> str:
    """The Python of a folder of its own with these packages."""
    place = folder / name
    python = place / "bin" / "python"
    if not (place / "ready").exists():
        print(f"        installing {' '.join(packages)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *packages], check=True)
        (place / "ready").touch()
    return str(python)


def gce_clients(folder: Path) -> list[Client]:
    """Those that can be had here."""
    found: list[Client] = []
    gcloud = shutil.which("gcloud")
    if gcloud:
        told = subprocess.run([gcloud, "--version"], capture_output=True, text=True, check=True).stdout
        found.append(Gcloud(told.splitlines()[0].replace("Google Cloud SDK", "gcloud"), [gcloud]))
    else:
        print("        gcloud is not on the PATH: left out")
    python = venv(folder, "discovery", DISCOVERY_CLIENT)
    found.append(Client(DISCOVERY_CLIENT.partition("==")[0], [python, str(HERE / "gce_discovery.py")]))
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        place = folder / "node"
        place.mkdir(exist_ok=True)
        if not (place / "node_modules" / "@google-cloud").is_dir():
            print(f"        installing {NODE_CLIENT}", flush=True)
            words = [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(place), NODE_CLIENT]
            subprocess.run(words, check=True)
        words = [node, "--no-warnings", str(HERE / "gce_node.mjs")]
        found.append(Client(f"node {NODE_CLIENT.rpartition('@')[0]}", words, {"NODE_FOLDER": str(place)}))
    else:
        print("        node and npm are not on the PATH: left out")
    return found


def pod_clients(folder: Path) -> list[Client]:
    """dstack's, of a version for each API."""
    return [
        Client(title, [venv(folder, package.replace("==", "-"), package), str(HERE / "pods_dstack.py")])
        for title, package in DSTACKS.items()
    ]


def machines(served: Served) -> dict[str, dict[str, Any]]:
    """The open machines of the ledger, by name."""
    return {row["name"]: row for row in served.json("status")["machines"]}


def as_gce(row: Mapping[str, Any]) -> dict[str, str]:
    """A machine of the ledger as a client tells it."""
    own = str(row["machine"]).rpartition("/")[2]
    return {"id": own, "name": row["name"], "zone": row["zone"], "status": row["status"]}


def as_pod(row: Mapping[str, Any]) -> dict[str, str]:
    """The same of a pod."""
    return {"id": str(row["machine"]).partition(":")[2], "name": row["name"], "status": row["status"]}


def until(served: Served, holds: Callable[[], bool]) -> bool:
    """Tick until it holds; whether it came to that."""
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        served.run("poll")
        if holds():
            return True
        time.sleep(2)
    return False


def by_id(rows: Any) -> Any:
    """A list in an order of its own."""
    return sorted(rows, key=lambda row: row["id"]) if isinstance(rows, list) else rows


def gone(served: Served, named: Iterable[str]) -> dict[str, str]:
    """Those of these machines that the log has seen to be gone, and how: by whom, or as a queue entry that vanished."""
    wanted = set(named)
    told = {event["machine"]: event["payload"]["by"] for event in served.events("--type", "TornDown")}
    for event in served.events("--type", "FailoverDecided"):
        if event["payload"]["reason"] == "queue_vanish":
            told[event["machine"]] = "queue_vanish"
    return {machine: how for machine, how in told.items() if machine in wanted}


def compare(served: Served, gce: Sequence[Client], pods: Sequence[Client]) -> int:
    """The whole course; how many differences there were."""
    served.env["GCP_PROJECT"] = served.project
    say = Report()
    what = ("--intent", "eval", "--workload-cmd", "sleep 3600")
    made: dict[str, list[str]] = {}
    for number, client in enumerate(gce, start=1):
        made[client.title] = [f"eps-issue-{100 + number}", f"eps-issue-{200 + number}"]
        served.run("dispatch", "--issue", 100 + number, "--backend", "gcp", *what)
        served.run("dispatch", "--issue", 200 + number, "--backend", "gcp", "--provisioning-model", "FLEX_START", *what)
    for number, client in enumerate(pods, start=1):
        made[client.title] = [f"pod-{300 + number}"]
        served.run("dispatch", "--issue", 300 + number, "--backend", "runpod", *what)

    def settled() -> bool:
        wanted = {name for names in made.values() for name in names}
        rows = machines(served)
        queued = {f"eps-issue-{200 + number}" for number in range(1, len(gce) + 1)}
        return all(rows[name]["status"] == ("PENDING" if name in queued else "RUNNING") for name in wanted)

    if not until(served, settled):
        print(f"DIFFER  the machines did not settle: {machines(served)}")
        return 1
    rows = machines(served)
    instances = by_id([as_gce(row) for row in rows.values() if row["backend"] == "gcp"])

    print("\n-- each sees what the ledger made")
    for client in gce:
        say(client.title, "list", by_id(client(served, "list")), instances)
        for name in made[client.title]:
            say(client.title, f"describe {name}", client(served, "describe", name, ZONE), as_gce(rows[name]))
    for client in pods:
        say(client.title, "is the key good?", client(served, "key"), True)
        for name in made[client.title]:
            row = as_pod(rows[name])
            say(client.title, f"get_pod {row['id']}", client(served, "describe", row["id"]), row)

    print("\n-- what they make is foreign to the ledger, and left alone")
    foreign = {}
    for client in pods:
        foreign[client.title] = client(served, "create", "a-pod-of-somebody")
    makers = [client for client in gce if isinstance(client, Gcloud)]
    for client in makers:
        client(served, "create", "a-vm-of-somebody", ZONE)
    served.run("poll")
    told = served.json("reconcile", fails=True)
    counted = {account["backend"]: account["foreign"] for account in told["accounts"]}
    say("ledger reconcile", "foreign machines", counted, {"gcp": len(makers), "runpod": len(pods)})

    print("\n-- each ends them, and the ledger sees them gone by another's hand")
    with ThreadPoolExecutor() as pool:

        def end(client: Client, name: str) -> tuple[Client, str, Any, Any]:
            where = [name, ZONE] if client in gce else [as_pod(rows[name])["id"]]
            return client, name, client(served, "delete", *where), client(served, "describe", *where)

        jobs = [pool.submit(end, client, name) for client in (*gce, *pods) for name in made[client.title]]
        for job in jobs:
            client, name, said, after = job.result()
            say(client.title, f"delete {name}", said, "deleted")
            say(client.title, f"describe {name} after it", after, None)
    ended = {
        rows[name]["machine"]: "queue_vanish" if rows[name]["status"] == "PENDING" else "external"
        for names in made.values()
        for name in names
    }
    until(served, lambda: gone(served, ended) == ended)
    say("ledger log", "seen to be gone", gone(served, ended), ended)

    print("\n-- the ledger ends what it made after that, and nothing else")
    for stream in {row["run"] for row in served.json("status")["runs"]}:
        served.run("cancel", stream.removeprefix("issue-"))
    until(served, lambda: not served.json("status")["runs"])
    say("ledger status", "open runs", served.json("status")["runs"], [])
    for client in gce:
        names = [row["name"] for row in client(served, "list")]
        say(client.title, "list", names, ["a-vm-of-somebody"] if makers else [])
    for client in pods:
        there = client(served, "describe", foreign[client.title]) or {}
        say(client.title, "its own pod is there", there.get("status"), "RUNNING")
        say(client.title, "delete it", client(served, "delete", foreign[client.title]), "deleted")
    for client in makers:
        say(client.title, "delete a-vm-of-somebody", client(served, "delete", "a-vm-of-somebody", ZONE), "deleted")
    say("ledger audit", "open breaches", served.json("audit", fails=True)["open"], [])
    say("ledger verify", "findings", served.json("verify", fails=True)["findings"], [])
    known = {e["machine"] for e in served.events() if e["type"] == "Provisioned"}
    books = served.stop()
    say("the world's books", "still billed", books["live"], [])
    theirs = {row["machine"] for row in books["billing"]} - known
    say("the world's books", "billed and not in the log", len(theirs), len(makers) + len(pods))
    return say.wrong


def main(argv: Sequence[str]) -> int:
    """The exit status."""
    with tempfile.TemporaryDirectory(prefix="second-") as scratch:
        folder = Path(argv[0]).absolute() if argv else Path(scratch) / "clients"
        folder.mkdir(parents=True, exist_ok=True)
        gce, pods = gce_clients(folder), pod_clients(folder)
        with Served(Path(scratch) / "ledger", POLICY) as served:
            wrong = compare(served, gce, pods)
    print(f"\n{len(gce) + len(pods)} clients; {wrong or 'no'} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    os.environ.pop("LEDGER_DATABASE_URL", None)
    sys.exit(main(sys.argv[1:]))
