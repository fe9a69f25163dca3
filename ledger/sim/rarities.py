"""What happens once in a hundred scenarios: coincidences that no single draw of the mishaps would bring about."""

from __future__ import annotations

from ledger.sim import schema
from ledger.sim.mishaps import Mishaps, Row

LATER_THAN_ANY = 3900  # seconds: an hour after a create's deadline its machine is a clone


class Rarities(Mishaps):
    """Draws the last rows of a document, so that what was drawn before stays as it was."""

    def rarely(self) -> int:
        """Now and then one rare thing; the second up to which it needs the poller (0: as it is)."""
        if not self._maybe(0.15):
            return 0
        story = self.chance.choice(
            (
                self._clone,
                self._called_off,
                self._called_off,
                self._guarded,
                self._braked,
                self._busy_and_dead,
                self._speechless,
                self._odd_status,
                self._elsewhere,
                self._nobody,
                self._again,
                self._powered_off,
                self._misread,
            )
        )
        return story() or 0

    def _clone(self) -> int:
        """What a create made shows so late that nobody can take it for that create's."""
        cloud = self._cloud()
        nth = self.chance.choice((1, 1, 2))
        late = LATER_THAN_ANY + self.chance.choice((0, 300))
        self._add("calls", cloud=cloud, call="create", nth=nth, answer="timeout", effect={"late": late})
        return self.span + late

    def _called_off(self) -> None:
        """An entry of the queue that vanishes just as its run is called off, by a process that dies."""
        run = self.chance.choice(self.runs)
        at = self.chance.choice((150, 185, 200))
        self._add("world", at=at, cloud="gcp", name=self._name("gcp", run), becomes="gone")
        self._add("cancels", at=at + self.chance.choice((0, 0, 1)), issue=run[0], lane=run[1])
        self._add("crashes", after="event", type="CancelRequested", nth=1)

    def _guarded(self) -> None:
        """A name that nothing may touch."""
        self.policy["protect"] = [self._name(self._cloud())]

    def _braked(self) -> None:
        self.policy["max_teardowns_per_tick"] = self.chance.choice((1, 1, 2))
        if self._maybe(0.5):
            at = self._when()
            for run in self.runs:
                self._add("cancels", at=at, issue=run[0], lane=run[1])

    def _busy_and_dead(self) -> None:
        """A pod on which something computes, and no workload is found."""
        run = self.chance.choice(self.runs)
        self._add("workloads", cloud="runpod", nth=1, does="never_starts")
        self._add("world", at=self._when(), cloud="runpod", name=self._name("runpod", run), gpu_util=70)

    def _speechless(self) -> None:
        """A pod whose workload lives and writes no log for a while."""
        name = self._name("runpod", self.chance.choice(self.runs))
        at = self._when()
        self.sections.setdefault("world", []).append({"at": at, "cloud": "runpod", "name": name, "log_age": None})
        self._add("world", at=at + self.chance.choice((100, 300)), cloud="runpod", name=name, log_age=0)

    def _odd_status(self) -> None:
        """A status that an instance passes through, or one of which nobody knows what it means for a run."""
        name = self._name("gcp", self.chance.choice(self.runs))
        at = self._when()
        status = self.chance.choice(("SUSPENDING", "SUSPENDED", "PENDING_STOP", "DEPROVISIONING", "STOPPED"))
        self._add("world", at=at, cloud="gcp", name=name, becomes=status)
        then = "gone" if status == "DEPROVISIONING" else self.chance.choice(("RUNNING", "TERMINATED", "gone"))
        self._add("world", at=at + self.chance.choice((61, 130)), cloud="gcp", name=name, becomes=then)

    def _elsewhere(self) -> None:
        """An old handle of a backend that the ledger does not drive, and a person who asks for its run all the same."""
        extra: Row = {"issue": 8, "workload_cmd": "bash run.sh"}
        self._add(
            "sidecars",
            backend="slurm",
            job_id="4711",
            pod_name="run-8",
            scratch_dir="/scratch",
            log_path="/scratch/logs/issue-8.log",
            extra=extra,
        )
        self.sections["sidecars"][-1]["cluster"] = "alpha"
        asked = self.chance.choice(("cancels", "finalizes", "dispatches"))
        if asked == "dispatches":
            self._add(asked, at=self._when(), issue=8, backend="gcp", gpu_type="H100", gpus=1, workload_cmd="x")
        else:
            self._add(asked, at=self._when(), issue=8)

    def _nobody(self) -> None:
        """A word about a run that there is not."""
        self._add(self.chance.choice(("cancels", "finalizes")), at=self._when(), issue=9)

    def _again(self) -> None:
        """A run that is called off and asked for again, while its machine is on its way out and after."""
        issue, lane = self.chance.choice(self.runs)
        at = self._when()
        for _ in range(self.chance.choice((1, 2, 2))):
            self._add("cancels", at=at, issue=issue, lane=lane)
            at += self.chance.choice((1, 10, 61, 200))
            model = self.chance.choice(schema.MODELS)
            self._add(
                "dispatches",
                at=at,
                issue=issue,
                lane=lane,
                backend="gcp",
                provisioning_model=model,
                gpu_type="H100",
                gpus=1,
                workload_cmd="bash run.sh",
            )
            at += self.chance.choice((61, 130))

    def _powered_off(self) -> None:
        """A guest that says how it went, and then powers its instance off."""
        name = self._name("gcp", self.chance.choice(self.runs))
        at = self._when()
        phase = self.chance.choice(("done", "wedged", "failed", "finalize_failed_artifacts_ok"))
        started = self.chance.choice((True, False)) if phase == "failed" else True
        self._add("world", at=at, cloud="gcp", name=name, becomes="RUNNING", phase=phase, workload_started=started)
        off = self.chance.choice(("TERMINATED", "TERMINATED", "STOPPED"))
        self._add("world", at=at + self.chance.choice((1, 45, 70)), cloud="gcp", name=name, becomes=off)

    def _misread(self) -> None:
        """An old handle that bears another instance's id than the machine of its name."""
        row = next((row for row in self.sections.get("sidecars", ()) if row["backend"] == "gcp"), None)
        if row is not None:
            row["job_id"] = "9099999"
            row["extra"].pop("last_phase_incarnation", None)
