"""What may go wrong in a random scenario: fates of machines, answers of clouds, strangers among the machines."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from ledger.sim import schema

Row = dict[str, Any]
Run = tuple[int, str | None]

LADDERS = (
    ["gcp:FLEX_START", "runpod", "gcp:STANDARD"],
    ["gcp:FLEX_START", "runpod"],
    ["runpod", "gcp:FLEX_START"],
    ["gcp:SPOT", "gcp:FLEX_START", "runpod", "gcp:STANDARD"],
    ["gcp:FLEX_START", "gcp:STANDARD"],
)
ZONES = ("us-central1-a", "us-east4-b", "europe-west4-a")


class Mishaps:
    """Draws rows into `sections`. What is drawn depends on the chance alone, in one fixed order."""

    def __init__(self, chance: random.Random, name: str) -> None:
        self.chance = chance
        self.name = name
        self.every = chance.choice((45, 60, 60, 60, 90))
        self.span = chance.choice((500, 800, 1100, 1500))  # faults happen before this second
        self.pollers = chance.choice((1, 1, 1, 2, 2, 3))
        self.zones = list(ZONES[: chance.choice((1, 1, 2, 3))])
        self.policy: Row = {}
        self.ladder: Sequence[str] = LADDERS[0]
        self.runs: list[Run] = []
        self.sections: dict[str, list[Row]] = {}
        self.moments: set[tuple[str, int]] = set()  # of the world's rows: name and second

    # Small things.

    def _maybe(self, likely: float) -> bool:
        return self.chance.random() < likely

    def _add(self, section: str, **row: Any) -> None:
        """A row; what is None is left out, and `begin` is the key `from`."""
        named = {"begin": "from", "lasts": "for"}
        kept = {named.get(key, key): value for key, value in row.items() if value is not None}
        # What was true for no time at all did not happen, and a guest that tells of it lies.
        while section == "world" and "name" in kept and (kept["name"], kept["at"]) in self.moments:
            kept["at"] += 1
        self.moments.add((kept.get("name", ""), kept.get("at", 0)))
        self.sections.setdefault(section, []).append(kept)

    def _when(self) -> int:
        """A moment before the end of the faults, near a tick as often as not."""
        when = self.chance.randrange(self.span)
        if self._maybe(0.5):
            when = when // self.every * self.every + self.chance.choice((-1, 0, 0, 1, 5))
        return max(when, 1)

    def _name(self, cloud: str, run: Run | None = None) -> str:
        issue, lane = run or self.chance.choice(self.runs)
        return f"{'eps-issue' if cloud == 'gcp' else 'pod'}-{issue}{'-' + lane if lane else ''}"

    def _cloud(self) -> str:
        return self.chance.choice(schema.CLOUDS)

    def _stories(self) -> None:
        """What becomes of the runs' machines by itself."""
        for run in self.runs:
            for _ in range(self.chance.choice((0, 1, 1, 2))):
                self._story(run)
        for _ in range(self.chance.choice((0, 1, 1, 2))):
            cloud = self._cloud()
            does = self.chance.choice(("never_starts", "starts", "starts"))
            starts = does == "starts"
            self._add(
                "workloads",
                cloud=cloud,
                nth=self.chance.choice((None, 1, 1, 2, 3)),
                does=does,
                after=self.chance.choice((0, 20, 90, 200, 390)) if starts else None,
                runs=self.chance.choice((1, 30, 200, 600, 3000)) if starts else None,
                exit=self.chance.choice((0, 0, 1, 137)) if starts else None,
            )

    def _story(self, run: Run) -> None:
        tell: Callable[[Run], None] = self.chance.choice(
            (
                *(self._queue,) * 3,
                self._taken,
                self._guest,
                self._dark,
                self._portless,
                self._ends,
                self._boots,
            )
        )
        tell(run)

    def _queue(self, run: Run) -> None:
        """A queue entry that moves, vanishes, or comes back after it was given up."""
        at = self.chance.choice((self._when(), 200, 239, 240, 241, 299, 300))
        fate = self.chance.choice(("RUNNING", "RUNNING", "gone", "gone", "PROVISIONING", "STAGING"))
        phase = self.chance.choice((None, "startup", "workload")) if fate == "RUNNING" else None
        self._add("world", at=at, cloud="gcp", name=self._name("gcp", run), becomes=fate, phase=phase)
        if fate in ("PROVISIONING", "STAGING"):
            later = at + self.chance.choice((20, 100, 400))
            phase = self.chance.choice((None, "workload"))
            self._add("world", at=later, cloud="gcp", name=self._name("gcp", run), becomes="RUNNING", phase=phase)

    def _taken(self, run: Run) -> None:
        cloud = self._cloud()
        self._add("world", at=self._when(), cloud=cloud, name=self._name(cloud, run), becomes="gone")

    def _guest(self, run: Run) -> None:
        """A guest that says how its workload or its set-up went."""
        phase = self.chance.choice(("failed", "failed", "done", "wedged", "workload", "finalize_failed_artifacts_ok"))
        started = self.chance.choice((None, True, False))
        at = self._when()
        becomes = self.chance.choice((None, None, "RUNNING", "TERMINATED"))
        name = self._name("gcp", run)
        self._add("world", at=at, cloud="gcp", name=name, becomes=becomes, phase=phase, workload_started=started)

    def _boots(self, run: Run) -> None:
        """A set-up that fails as often as it is tried, or all but once."""
        at, name = self._when(), self._name("gcp", run)
        for _ in range(self.chance.choice((1, 2, 3))):
            self._add("world", at=at, cloud="gcp", name=name, becomes="RUNNING", phase="failed", workload_started=False)
            at += self.chance.choice((130, 190, 250))

    def _dark(self, run: Run) -> None:
        """SSH does not reach it for a while, or for ever; or what it reads there is odd."""
        cloud = self._cloud()
        at, name = self._when(), self._name(cloud, run)
        what: Row = self.chance.choice(
            (
                {"reachable": False},
                {"reachable": False},
                {"pid": "dead"},
                {"log_age": None},
                {"log_age": 5000},
                {"gpu_util": None},
                {"gpu_util": 0},
                {"gpu_util": 70},
            )
        )
        self.sections.setdefault("world", []).append({"at": at, "cloud": cloud, "name": name, **what})
        if "reachable" in what and self._maybe(0.5):
            back = at + self.chance.choice((60, 130, 400))
            self._add("world", at=back, cloud=cloud, name=name, reachable=True)

    def _portless(self, run: Run) -> None:
        name = self._name("runpod", run)
        at = self.chance.choice((1, self._when()))
        self._add("world", at=at, cloud="runpod", name=name, ports=False)
        if self._maybe(0.3):
            self._add("world", at=at + self.chance.choice((100, 239, 241)), cloud="runpod", name=name, ports=True)

    def _ends(self, run: Run) -> None:
        """The cloud keeps it and no longer runs it."""
        cloud = self._cloud()
        gce = ("TERMINATED", "STOPPED", "SUSPENDED", "REPAIRING", "STOPPING")
        status = self.chance.choice(gce) if cloud == "gcp" else "EXITED"
        at, name = self._when(), self._name(cloud, run)
        self._add("world", at=at, cloud=cloud, name=name, becomes=status)
        if status in ("REPAIRING", "STOPPING") or self._maybe(0.2):
            back = "gone" if status == "STOPPING" else "RUNNING"
            self._add("world", at=at + self.chance.choice((30, 130)), cloud=cloud, name=name, becomes=back)

    def _faults(self) -> None:
        for _ in range(self.chance.choice((0, 1, 1, 2, 3, 4, 6))):
            cloud = self._cloud()
            call = self.chance.choice((*schema.CALLS_OF[cloud], "create", "create", "delete", "list"))
            self._add("calls", **(self._create(cloud) if call == "create" else self._answer(cloud, call)))
        if self._maybe(0.25):
            self._blind()
        if self._maybe(0.15):
            self._silent()

    def _blind(self) -> None:
        """Reads that agree on what is not so: a list that lacks a machine while a describe of it fails or lies."""
        cloud = self._cloud()
        begin = self._when()
        window = {"from": begin, "to": begin + self.chance.choice((61, 130, 300))}
        listed = self.chance.choice(("partial", "stale", "empty", "other_account", "error"))
        described = self.chance.choice(("not_found", "other_account", "error", "ok"))
        lag = self.chance.choice((60, 300)) if listed == "stale" else None
        self._add("calls", cloud=cloud, call="list", **window, answer=listed, lag=lag)
        self._add("calls", cloud=cloud, call="describe", **window, answer=described)

    def _silent(self) -> None:
        """A create that nobody hears of, and lists that do not show what it made until its time is over."""
        cloud = self._cloud()
        nth = self.chance.choice((1, 1, 2))
        effect = self.chance.choice(("done", "done", "twice", {"late": self.chance.choice((30, 150, 300))}))
        self._add("calls", cloud=cloud, call="create", nth=nth, answer="timeout", effect=effect)
        listed = self.chance.choice(("partial", "stale", "error", "timeout", "malformed"))
        lag = self.chance.choice((200, 500)) if listed == "stale" else None
        begin = self.chance.choice((1, 60, 240))
        until = begin + self.chance.choice((130, 250, 400))
        self._add("calls", cloud=cloud, call="list", begin=begin, to=until, answer=listed, lag=lag)

    def _selector(self, cloud: str) -> Row:
        if self._maybe(0.55):
            return {
                "nth": self.chance.choice((1, 1, 1, 2, 2, 3, 4, 6)),
                "times": self.chance.choice((None, None, 2, 4)),
            }
        begin = self._when()
        most = self.span - begin + 60
        row: Row = {"begin": begin, "to": begin + min(most, self.chance.choice((61, 130, 300, 600)))}
        if self._maybe(0.2):
            row["name"] = self._name(cloud)
        return row

    def _create(self, cloud: str) -> Row:
        """How a create is answered: a refusal, a silence behind which there is something, a long wait."""
        row: Row = {"cloud": cloud, "call": "create", **self._selector(cloud)}
        row["answer"] = self.chance.choice(
            (
                *("no_capacity",) * 4,
                *("timeout",) * 4,
                *("error",) * 3,
                *("quota", "unauthorized", "already_exists"),
                *("reset", "malformed", "ok", "not_found", "other_account"),
            )
        )
        if row["answer"] == "error":
            row["http"] = self.chance.choice((500, 500, 503, 400, 403, 404, 409, 429, 401, 402, 408))
        unsure = row["answer"] in ("timeout", "reset", "malformed") or row.get("http", 0) in (500, 503, 408)
        if unsure:
            row["effect"] = self.chance.choice(
                ("done", "done", "none", "twice", {"late": self.chance.choice((5, 60, 200, 500))})
            )
        if self._maybe(0.35):
            row["takes"] = self.chance.choice((5, 19, 30, 49, 100, 119, 300))
        if cloud == "gcp" and self._maybe(0.2):
            row["zone"] = self.chance.choice(self.zones)
        if row["answer"] == "ok" and cloud == "gcp":
            row["status"] = self.chance.choice((None, "RUNNING", "PENDING", "STAGING", "PROVISIONING"))
            row["provisioning_model"] = self.chance.choice((None, "STANDARD", "FLEX_START"))
        if row["answer"] in ("no_capacity", "quota") and self._maybe(0.4):
            for key in ("nth", "times", "begin", "to"):
                row.pop(key, None)  # there is none all night
        return row

    def _answer(self, cloud: str, call: str) -> Row:
        answers = [
            "error",
            "error",
            "timeout",
            "reset",
            "malformed",
            "unauthorized",
            "not_found",
            "other_account",
            "ok",
        ]
        row: Row = {"cloud": cloud, "call": call, **self._selector(cloud)}
        if call == "list":
            answers += ["empty", "empty", "partial", "partial", "stale", "stale"]
            row.pop("name", None)
        row["answer"] = self.chance.choice(answers)
        if row["answer"] == "stale":
            row["lag"] = self.chance.choice((30, 60, 200, 500))
        if row["answer"] == "error":
            row["http"] = self.chance.choice((500, 503, 404, 429, 403))
        if call in ("delete", "launch") and row["answer"] != "ok":
            row["effect"] = self.chance.choice((None, None, "done", "twice", {"late": self.chance.choice((30, 200))}))
        if row["answer"] == "ok" or self._maybe(0.3):
            row["takes"] = self.chance.choice((3, 19, 21, 30, 45))
        return row

    def _strangers(self) -> None:
        """Machines that no one told the ledger of: orphans, another ledger's, other people's, marked ones."""
        for number in range(self.chance.choice((0, 0, 0, 1, 1, 2, 3))):
            cloud = self._cloud()
            kind = self.chance.choice(("orphan", "orphan", "orphan", "other", "foreign", "ours"))
            marker = {"other": "other", "ours": "ours"}.get(kind, "none")
            name = "someone-else" if kind == "foreign" else self._name(cloud)
            gpu = self.chance.choice((0, 0, 0, 80, None))
            row: Row = {"id": f"{'77' if cloud == 'gcp' else 'st'}{number}00", "marker": marker}
            if cloud == "gcp":
                row["zone"] = self.chance.choice(self.zones)
            row |= {"status": self.chance.choice(("RUNNING", "RUNNING", "RUNNING", "TERMINATED"))}
            if cloud == "runpod" and row["status"] == "TERMINATED":
                row["status"] = "EXITED"
            if gpu is not None:
                row["gpu_util"] = gpu
            row["workload"] = gpu != 0 and self._maybe(0.5)
            if kind != "ours" and self._maybe(0.5):
                section = "machines"
                self._add(section, cloud=cloud, name=name, created=-self.chance.choice((60, 3600, 90_000)), **row)
            else:
                section = "world"
                self._add(section, at=self._when(), cloud=cloud, appears=name, **row)
            if gpu is None:
                self.sections[section][-1]["gpu_util"] = None  # nobody can tell, which is not idle
