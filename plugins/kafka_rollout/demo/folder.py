"""The folder of a demo in this checkout, and the mark in the environment of its processes."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from kafka_rollout.settings import Settings

PROJECT_ROOT = Path(__file__).resolve().parents[3]


# In the environment of Airflow and of all processes that it starts, so that `demo-clean` finds them.
MARK = "KAFKA_ROLLOUT_DEMO"
DEMOS = PROJECT_ROOT / ".demo"


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """Paths of a demo."""

    path: Path

    @classmethod
    def create(cls, below: Path = DEMOS) -> DemoFolder:
        """Create a folder named by time and process id; driver.json identifies this process as the driver."""
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
        """Return the demo's own inventory and home, with the machine's cache of releases."""
        machine = Settings.from_environment()
        return Settings(
            clusters=self.path / "clusters",
            home=self.path / "home",
            cache=machine.cache,
            include=machine.include,
        )

    def environment(self) -> dict[str, str]:
        """Return the variables by which Airflow's processes find this demo's cluster."""
        settings = self.settings
        return {
            MARK: str(self.path),
            "KAFKA_ROLLOUT_CLUSTERS": str(settings.clusters),
            "KAFKA_ROLLOUT_HOME": str(settings.home),
            "KAFKA_ROLLOUT_CACHE": str(settings.cache),
            "KAFKA_ROLLOUT_INCLUDE": str(settings.include),
        }

    def driver(self) -> psutil.Process | None:
        """Return the process that drives this demo, if it runs; identified by process id and start time."""
        try:
            noted = json.loads((self.path / "driver.json").read_text())
            process = psutil.Process(noted["pid"])
            return process if process.create_time() == noted["started_at"] else None
        except (OSError, ValueError, KeyError, psutil.Error):
            return None
