"""What the commands share: their options, and opening a cluster's ports."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from kafka_rollout.adapters.inventory import find_cluster
from kafka_rollout.adapters.kafka.security import ClientSecurity
from kafka_rollout.adapters.store.runs import FileRunStore, list_runs
from kafka_rollout.composition.cluster_ports import open_cluster_ports
from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.settings import Settings
from kafka_rollout.steps.common.cluster_ports import ClusterPorts

ClusterName = Annotated[str, typer.Option("--cluster", "-c", help="Name in the inventory (see `clusters`).")]
Target = Annotated[str, typer.Option("--to", help="Release to go to, for example 4.3.1.")]
RunId = Annotated[str | None, typer.Option("--run", help="Run to resume or read; a new one if left out.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ConnectionFile = Annotated[
    Path | None,
    typer.Option("--connection-file", help="Credentials and TLS, a JSON file with mode 0600; PLAINTEXT without."),
]
Approved = Annotated[str | None, typer.Option("--approve-as", help="Name of the person who approves.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why, in a sentence; kept in the run's record.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask at the terminal; the named person has decided.")]
Soak = Annotated[float, typer.Option("--soak", help="Seconds a node must stay well before the next one.", min=0)]
Looks = Annotated[int, typer.Option("--looks", help="Looks in a row that a gate must hold.", min=1)]
Interval = Annotated[float, typer.Option("--interval", help="Seconds between two looks.", min=0)]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds until a gate that does not hold fails.", min=1)]


SnapshotInterval = Annotated[
    int | None,
    typer.Option(
        "--snapshot-interval",
        help="Seconds: lower the nodes' metadata snapshot interval with the roll, so that one follows finalizing soon.",
        min=5,
        max=3600,
    ),
]


def new_run_id() -> str:
    """Never the same twice: it is also the holder of the cluster's lock."""
    return f"{time.strftime('%Y%m%dT%H%M%S')}-shell-{secrets.token_hex(3)}"


def milliseconds(seconds: int | None) -> int | None:
    return None if seconds is None else 1000 * seconds


@contextmanager
def open_bench(
    cluster: str, run: str | None, connection_file: Path | None
) -> Iterator[tuple[ClusterPorts, Settings, ClientSecurity | None]]:
    settings = Settings.from_environment()
    spec = find_cluster(settings.clusters, cluster)
    security = security_of(spec, connection_file)
    if run is not None and run not in list_runs(settings.home, cluster):
        raise UserError(
            f"Cluster {cluster} has no run {run}.",
            remedy=f"It has {', '.join(list_runs(settings.home, cluster)[:5]) or 'none'}.",
        )
    with open_cluster_ports(cluster, run or new_run_id(), security, settings) as ports:
        yield ports, settings, security


def security_of(spec: ClusterSpec, connection_file: Path | None) -> ClientSecurity | None:
    """From the file; raises UserError where the inventory says that the cluster needs more than it has."""
    security = None if connection_file is None else ClientSecurity.from_file(connection_file)
    needed = [name for name in (spec.connection_id, spec.controller_connection_id) if name is not None]
    if needed and security is None:
        raise UserError(
            f"Cluster {spec.name} is reached with the settings of Connection {' and '.join(needed)}; a shell has none.",
            remedy="Name a file with them: --connection-file FILE (mode 0600).",
        )
    if spec.controller_connection_id is not None and security is not None and security.controllers is None:
        raise UserError(
            f"The controllers of cluster {spec.name} are reached with settings of their own (Connection "
            f"{spec.controller_connection_id}), which {connection_file} does not have.",
            remedy='Put them into the file as an object under "controllers".',
        )
    return security


def ledger_folder(settings: Settings, cluster: str) -> Path:
    return FileRunStore(settings.home, cluster, "ledger").folder / "ledger"
