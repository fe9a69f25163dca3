"""Which rule of a scenario a call meets, and where processes die or stand still. It counts what reached the clouds.

`nth` is the number of that call on that cloud, counted as calls reach it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from ledger.sim.history import History
from ledger.sim.schema import CallRule, Crash, Pause, Scenario


@dataclass(frozen=True, slots=True)
class Ruling:
    """How one call is answered. `number` is its own, `rule` the one it met (with `answer: ok` where there is none)."""

    number: int
    rule: CallRule


@dataclass(slots=True)
class Rules:
    """The calls, crashes and pauses of a scenario, with how often each has served."""

    calls: Sequence[CallRule]
    crashes: Sequence[Crash] = ()
    pauses: Sequence[Pause] = ()
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    history: History = field(default_factory=History)
    _served: Counter[int] = field(default_factory=Counter)
    _spent: set[tuple[str, int]] = field(default_factory=set)
    _events: Counter[str] = field(default_factory=Counter)
    _files: int = 0
    _of: dict[tuple[str, str], list[tuple[int, CallRule]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for place, rule in enumerate(self.calls):
            self._of.setdefault((rule.cloud, rule.call), []).append((place, rule))

    @classmethod
    def of(cls, scenario: Scenario) -> Rules:
        """The rules of a scenario, none of them used."""
        return cls(scenario.calls, scenario.crashes, scenario.pauses)

    def admit(
        self, cloud: str, call: str, name: str | None, zone: str | None, zones: Sequence[str], now: int
    ) -> Ruling:
        """Count a call that reaches its cloud at `now`, and take the first rule for it that is not used up.

        `name` and `zone` are the machine's; a list has no name, and every one of `zones`.
        """
        self.counts[cloud, call] += 1
        number = self.counts[cloud, call]
        for place, rule in self._of.get((cloud, call), ()):
            if self._fits(place, rule, number, name, zone, zones, now):
                self._served[place] += 1
                self.history.served(rule, now)
                return Ruling(number, rule)
        return Ruling(number, CallRule(cloud, call))

    def _fits(
        self,
        place: int,
        rule: CallRule,
        number: int,
        name: str | None,
        zone: str | None,
        zones: Sequence[str],
        now: int,
    ) -> bool:
        times = rule.times if rule.times is not None or rule.nth is None else 1
        if times is not None and self._served[place] >= times:
            return False
        if rule.nth is not None and not rule.nth <= number < rule.nth + (times or 1):
            return False
        if rule.name is not None and (name is None or not fnmatchcase(name, rule.name)):
            return False
        if rule.zone is not None and rule.zone not in ((zone,) if rule.call != "list" else zones):
            return False
        return (rule.begin is None or rule.begin <= now) and (rule.end is None or now < rule.end)

    def pause(self, poller: int | None, cloud: str, call: str) -> int:
        """How long that poller stands still before the call it is about to make (microseconds; 0: it does not)."""
        upcoming = self.counts[cloud, call] + 1
        for place, pause in enumerate(self.pauses):
            mine = (pause.poller, pause.cloud, pause.call, pause.nth) == (poller, cloud, call, upcoming)
            if mine and self._spend("pause", place):
                return pause.lasts
        return 0

    def dies_before(self, cloud: str, call: str) -> bool:
        """Whether the process dies before the call it is about to make."""
        return self._dies("before-call", self.counts[cloud, call] + 1, cloud=cloud, call=call)

    def dies_after(self, cloud: str, call: str, number: int) -> bool:
        """Whether the process dies after its call of that number, with the reply unrecorded."""
        return self._dies("after-call", number, cloud=cloud, call=call)

    def dies_at_event(self, event_type: str) -> bool:
        """Count a committed event; whether its process dies right after."""
        self._events[event_type] += 1
        return self._dies("after-event", self._events[event_type], event_type=event_type)

    def dies_at_file(self) -> bool:
        """Count a file written; whether its process dies before the rename."""
        self._files += 1
        return self._dies("during-projection", self._files)

    def _dies(
        self, point: str, number: int, cloud: str | None = None, call: str | None = None, event_type: str | None = None
    ) -> bool:
        for place, crash in enumerate(self.crashes):
            where = (crash.point, crash.nth, crash.cloud, crash.call, crash.type)
            if where == (point, number, cloud, call, event_type) and self._spend("crash", place):
                what = " ".join(word for word in (cloud, call, event_type) if word)
                self.history.counts[f"dies {point} {what}".rstrip()] += 1
                return True
        return False

    def _spend(self, kind: str, place: int) -> bool:
        if (kind, place) in self._spent:
            return False
        self._spent.add((kind, place))
        return True
