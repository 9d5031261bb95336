"""The test traffic reads the finalized levels from one broker after the other, and does not guess."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_rollout.base.errors import TransientError
from kafka_rollout.client.security.client_security import ClientSecurity
from kafka_rollout.traffic.processes import main
from kafka_rollout.traffic.processes.main import Traffic


class Broker:
    """A connection that answers by the port: 1 does not respond, 2 does not know the levels, 3 knows them."""

    closed: list[str] = []  # noqa: RUF012

    def __init__(self, address: str, who: str, security: ClientSecurity) -> None:
        self.address = address

    def ask(self, request: Any, *, timeout_s: float) -> Any:
        if self.address == "b:1":
            raise TransientError("No response.")
        level = SimpleNamespace(name="group.version", min_version_level=1, max_version_level=1)
        epoch = -1 if self.address == "b:2" else 7
        return SimpleNamespace(
            error_code=0,
            api_keys=(),
            supported_features=(),
            finalized_features=(level,),
            finalized_features_epoch=epoch,
        )

    def close(self) -> None:
        self.closed.append(self.address)


@pytest.mark.parametrize(
    ("servers", "levels"), [("b:1, b:2,b:3", {"group.version": 1}), ("b:1,b:2", None), ("b:2", None)]
)
def test_levels_come_from_the_first_broker_that_knows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: str, levels: dict[str, int] | None
) -> None:
    monkeypatch.setattr(main, "NodeConnection", Broker)
    monkeypatch.setattr(Broker, "closed", [])
    process: Any = SimpleNamespace(settings={"group": "g", "lowered": {}}, folder=str(tmp_path))
    assert Traffic(process, servers, ClientSecurity())._finalized() == levels
    assert Broker.closed == [address.strip() for address in servers.split(",")]
