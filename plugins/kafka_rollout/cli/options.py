"""What the commands share: their options, and opening a cluster's ports."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_rollout.composition.cluster_ports import open_cluster_ports
from kafka_rollout.composition.clusters import get_cluster
from kafka_rollout.composition.credentials import read_credentials
from kafka_rollout.composition.records import list_runs, run_folder
from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.settings import Settings
from kafka_rollout.steps.common.cluster_ports import ClusterPorts

if TYPE_CHECKING:
    from kafka_rollout.composition.credentials import ClientSecurity

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
    security = read_credentials(get_cluster(cluster, settings), connection_file)
    if run is not None and run not in list_runs(cluster, settings):
        raise UserError(
            f"Cluster {cluster} has no run {run}.",
            remedy=f"It has {', '.join(list_runs(cluster, settings)[:5]) or 'none'}.",
        )
    with open_cluster_ports(cluster, run or new_run_id(), security, settings) as ports:
        yield ports, settings, security


def ledger_folder(settings: Settings, cluster: str) -> Path:
    return run_folder(cluster, "ledger", settings) / "ledger"
