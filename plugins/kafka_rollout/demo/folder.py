"""One demo's folder, and the mark by which its processes are known."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from kafka_rollout.demo.checkout import PROJECT_ROOT
from kafka_rollout.settings import Settings

# In the environment of Airflow and of all that it starts: by it `clean` tells them from everybody else's processes.
MARK = "KAFKA_ROLLOUT_DEMO"
DEMOS = PROJECT_ROOT / ".demo"


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """Where the parts of a demo lie."""

    path: Path

    @classmethod
    def create(cls, below: Path = DEMOS) -> DemoFolder:
        """A new one, named by time and process; it remembers which process drives it."""
        path = below.resolve() / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        path.mkdir(parents=True)
        me = psutil.Process()
        (path / "driver.json").write_text(json.dumps({"pid": me.pid, "started_at": me.create_time()}))
        return cls(path)

    @property
    def airflow_home(self) -> Path:
        return self.path / "airflow"

    @property
    def settings(self) -> Settings:
        """The demo's own inventory and home; the cache of releases is the machine's."""
        machine = Settings.from_environment()
        return Settings(
            clusters=self.path / "clusters",
            home=self.path / "home",
            cache=machine.cache,
            include=machine.include,
        )

    def environment(self) -> dict[str, str]:
        """What Airflow's processes must know to work on this demo's cluster."""
        settings = self.settings
        return {
            MARK: str(self.path),
            "KAFKA_ROLLOUT_CLUSTERS": str(settings.clusters),
            "KAFKA_ROLLOUT_HOME": str(settings.home),
            "KAFKA_ROLLOUT_CACHE": str(settings.cache),
            "KAFKA_ROLLOUT_INCLUDE": str(settings.include),
        }

    def driver(self) -> psutil.Process | None:
        """The living process that drives this demo; its start time tells it from another with the same id."""
        try:
            noted = json.loads((self.path / "driver.json").read_text())
            process = psutil.Process(noted["pid"])
            return process if process.create_time() == noted["started_at"] else None
        except (OSError, ValueError, KeyError, psutil.Error):
            return None
