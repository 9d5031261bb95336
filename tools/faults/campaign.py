"""The campaign: rounds of scenarios, each followed by its comparison."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from kafka_rollout.run.store.database import Database
from tools.demo.folder import PROJECT_ROOT
from tools.faults import contents
from tools.faults.contents import Snapshot, changed_configs, changed_contents
from tools.faults.database import RunDatabase, open_database
from tools.faults.health import Health
from tools.faults.history import History, run_ids
from tools.faults.hosts import HostsWorld
from tools.faults.injector import Injector
from tools.faults.kinds import HOSTS, Kind
from tools.faults.limits import unsafe_stops
from tools.faults.local import LocalWorld
from tools.faults.operator import Commands
from tools.faults.plan import Round, Scenario, rounds
from tools.faults.records import CampaignLine, FailureLine, FaultLine, Record, RunLine
from tools.faults.scenario import Driver, InterruptedCampaignError
from tools.faults.tool import Tool
from tools.faults.traffic import Comparison, Traffic
from tools.faults.world import World

_WHOLE_S = 240.0
_SHOWN = 5


@dataclass(slots=True, kw_only=True)
class Campaign:
    """`minutes`: no scenario begins later. `at_most`: number of faults. `left_out`: why kinds are missing.

    `results`: folder of the record, of the logs of failures and of the summary.
    """

    seed: int
    runtime: str
    kinds: Sequence[Kind]
    density: float
    minutes: float
    at_most: int | None
    results: Path
    first_round: int = 1
    isolated: bool = False
    left_out: str = ""
    stuck_s: float = 360.0
    stop_asked: Callable[[], bool]
    record: Record = field(init=False)
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        name = f"{self.runtime}-{self.seed}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
        self.record = Record(self.results / f"{name}.jsonl")

    def run(self) -> int:
        """Return the number of failures."""
        self.record.add(
            CampaignLine(
                at=time.time(),
                seed=self.seed,
                runtime=self.runtime,
                commit=_commit(),
                density=self.density,
                kinds=tuple(map(str, self.kinds)),
                left_out=self.left_out,
            )
        )
        for each in rounds(self.seed, self.runtime, self.kinds, self.density, first=self.first_round):
            if self._is_over():
                break
            self._round(each)
        return len(self.record.of(FailureLine))

    def _is_over(self) -> bool:
        reached = sum(fault.reached for fault in self.record.of(FaultLine))
        spent = (time.monotonic() - self.began) / 60
        return self.stop_asked() or spent >= self.minutes or (self.at_most is not None and reached >= self.at_most)

    def _round(self, of: Round) -> None:
        self.say(f"round {of.number}: {of.older} and {of.newer}, {of.layout} nodes, {of.database}")
        folder = Path(tempfile.mkdtemp(prefix="kafka-rollout-faults-", dir="/tmp"))
        folder.chmod(0o755)  # each node is a user of its own
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            database = stack.enter_context(open_database(of.database, folder / "home"))
            try:
                world = self._world(folder / "cluster", of)
            except Exception as error:
                self.fail(f"{of.number}.0", "broken", f"The cluster of the round was not created: {error}")
                return
            stack.callback(world.remove)
            tool = Tool(
                home=folder / "home",
                environment={"KAFKA_ROLLOUT_DATABASE": database.url, "KAFKA_ROLLOUT_CLUSTERS": str(world.inventory)},
                log=folder / "tool.log",
            )
            stack.callback(tool.end)
            traffic = Traffic(world.spec.bootstrap_servers)
            contents.repeated(traffic.create_topic)
            contents.plant(world.spec)
            traffic.start()
            stack.callback(traffic.stop)
            for scenario in of.scenarios:
                if self._is_over():
                    return
                try:
                    ended_as_planned = _One(self, of, scenario, world, tool, traffic, database).run()
                except InterruptedCampaignError:
                    return
                except Exception as error:
                    self.fail(f"{of.number}.{scenario.number}", "broken", f"{type(error).__name__}: {error}")
                    ended_as_planned = False
                if not ended_as_planned:
                    self._keep(world, tool, f"{of.number}.{scenario.number}")
                    return

    def _world(self, folder: Path, of: Round) -> World:
        if self.runtime == HOSTS:
            return HostsWorld(folder, of)
        return LocalWorld(folder, of, isolated=self.isolated)

    def _keep(self, world: World, tool: Tool, place: str) -> None:
        """Keep the logs of a scenario that failed."""
        folder = self.results / f"{self.record.path.stem}-{place}"
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):
            shutil.copy(tool.log, folder / "tool.log")
        world.keep_logs(folder)
        self.say(f"logs of {place}: {folder}")

    def fail(self, place: str, what: str, sentence: str) -> None:
        self.say(f"FAILED {place}: {what}: {sentence}")
        first = place.split(".", maxsplit=1)[0]
        options = f"--first-round {first} --density {self.density:g}"
        repeat = f"make faults RUNTIME={self.runtime} SEED={self.seed} ARGS='{options}'"
        self.record.add(FailureLine(at=time.time(), place=place, what=what, sentence=sentence, repeat=repeat))

    def say(self, line: str) -> None:
        reached = sum(fault.reached for fault in self.record.of(FaultLine))
        spent = time.monotonic() - self.began
        print(
            f"{int(spent // 60):3d}:{int(spent % 60):02d} of {self.minutes:g} min, {reached} faults | {line}",
            file=sys.stderr,
            flush=True,
        )


@dataclass(slots=True)
class _One:
    """One scenario of a campaign."""

    campaign: Campaign
    of: Round
    scenario: Scenario
    world: World
    tool: Tool
    traffic: Traffic
    database: RunDatabase
    compared: Comparison | None = None

    def run(self) -> bool:
        """Return whether the next scenario can begin."""
        campaign, began = self.campaign, time.monotonic()
        place = f"{self.of.number}.{self.scenario.number}"
        campaign.say(f"{place} {self.scenario.procedure}: {len(self.scenario.faults)} faults are planned")
        before, calls = contents.take(self.world.spec), self.tool.calls
        self.traffic.begin_period()
        database = Database(self.database.url)
        health = Health(self.world)
        injector = Injector(
            world=self.world,
            health=health,
            tool=self.tool,
            database=self.database,
            history=History(database=database, before=run_ids(database)),
            record=campaign.record,
            place=place,
            procedure=self.scenario.procedure,
            faults=self.scenario.faults,
            say=campaign.say,
        )
        driver = Driver(
            world=self.world,
            tool=self.tool,
            health=health,
            injector=injector,
            commands=Commands(cluster=self.world.spec.name, of=self.of, scenario=self.scenario),
            stuck_s=campaign.stuck_s,
            stop_asked=campaign.stop_asked,
        )
        health.start()
        injector.start()
        try:
            driver.run()
        finally:
            injector.finish()
            lacking = "interrupted" if campaign.stop_asked() else health.wait_until_whole(_WHOLE_S, driver.repair)
            health.stop()
        if campaign.stop_asked():
            raise InterruptedCampaignError
        failures = self._compare(place, driver=driver, injector=injector, health=health, before=before, lacking=lacking)
        outcome = "failed" if driver.stuck else "completed"
        self._note(place, driver, outcome, time.monotonic() - began, self.tool.calls - calls)
        return not failures

    def _compare(
        self, place: str, *, driver: Driver, injector: Injector, health: Health, before: Snapshot, lacking: str
    ) -> int:
        """Return the number of failures."""
        found: list[tuple[str, str]] = []
        if driver.stuck:
            found.append(("stuck", driver.stuck))
        if lacking:
            found.append(("not-whole", f"{_WHOLE_S:.0f} s after the run the cluster is not whole: {lacking}."))
        found += [
            ("unsafe-stop", sentence)
            for sentence in unsafe_stops(injector.history.stops, health.all_times(), self.world.spec.nodes)
        ]
        if not self.traffic.wait_until_acknowledged():
            found.append(("stuck", "Records were not acknowledged for 180 s after the run, without a fault."))
        compared = self.compared = self.traffic.compare()
        for what, text, names in (
            ("lost", "were acknowledged and are not stored", compared.lost),
            ("doubled", "are stored more than once", compared.doubled),
            ("lost", "are not stored where they were acknowledged", compared.moved),
        ):
            if names:
                found.append((what, f"{len(names)} records {text}: {', '.join(names[:_SHOWN])}."))
        after = contents.take(self.world.spec)
        found += [("contents", sentence) for sentence in changed_contents(before, after)]
        found += [("configuration", sentence) for sentence in changed_configs(before.configs, after.configs)]
        for what, sentence in found:
            self.campaign.fail(place, what, sentence)
        return len(found)

    def _note(self, place: str, driver: Driver, outcome: str, seconds: float, calls: int) -> None:
        compared = self.compared
        faults = self.campaign.record.of(FaultLine, place)
        self.campaign.record.add(
            RunLine(
                at=time.time(),
                place=place,
                layout=self.of.layout,
                procedure=str(self.scenario.procedure),
                releases=f"{self.of.older} and {self.of.newer}",
                run_id=driver.run_id,
                outcome=outcome,
                seconds=round(seconds, 1),
                calls=calls,
                faults=sum(fault.reached for fault in faults if fault.place == place),
                acknowledged=compared.acknowledged if compared else 0,
                lost=len(compared.lost) if compared else 0,
                doubled=len(compared.doubled) if compared else 0,
                waited_s=round(self.traffic.waited_s, 1),
            )
        )
        self.campaign.say(f"{place} {outcome} after {seconds:.0f} s and {calls} calls")


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=PROJECT_ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"
