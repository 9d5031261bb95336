"""Shared options of the commands, and the ports of a cluster."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.kafka.client.security.credentials import read_credentials
from kafka_rollout.run.store.opening import list_runs
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.wiring.cluster_ports import open_cluster_ports

if TYPE_CHECKING:
    from kafka_rollout.kafka.client.security.client_security import ClientSecurity

ClusterName = Annotated[str, typer.Option("--cluster", "-c", help="Name in the inventory (see `clusters`).")]
Target = Annotated[str, typer.Option("--to", help="Target release, for example 4.3.1.")]
RunId = Annotated[str | None, typer.Option("--run", help="Id of the run to continue; default: a new run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JsonFile = Annotated[str | None, typer.Option("--json", metavar="FILE", help="File for the JSON result; - prints it.")]
ConnectionFile = Annotated[
    Path | None,
    typer.Option(help="JSON file with credentials and TLS settings, file mode 0600; default: no TLS, no credentials."),
]
Approver = Annotated[str | None, typer.Option("--approve-as", help="Name of the approver, from the inventory's list.")]
Reason = Annotated[str | None, typer.Option(help="Reason of the approval, as a sentence; stored in the run history.")]
TakeOver = Annotated[
    bool,
    typer.Option("--take-over", help="Continue a run that a DAG started, as the approver in --approve-as."),
]
Yes = Annotated[
    bool, typer.Option("--yes", help="Skip the confirmation at the terminal: --approve-as has approved already.")
]
Soak = Annotated[
    float, typer.Option(help="Seconds during which every check must pass before the next node is stopped.", min=0)
]
Checks = Annotated[int, typer.Option(help="Number of consecutive checks that must pass.", min=1)]
Interval = Annotated[float, typer.Option(help="Seconds between two checks.", min=0)]
Timeout = Annotated[
    float, typer.Option(help="Gate timeout in seconds. The gate fails if it has not passed by then.", min=1)
]
AcceptUnavailable = Annotated[
    list[str] | None,
    typer.Option(
        help="Name or pattern (tmp-*) of a topic that can be unavailable while nodes restart; repeatable. The approval "
        "lists it. A wildcard does not contain internal topics, unless the pattern begins with __."
    ),
]
Traffic = Annotated[
    bool,
    typer.Option("--traffic", help="Run test traffic during the run and compare acknowledged with consumed records."),
]
Rehearse = Annotated[
    bool,
    typer.Option(
        help="Try the change on a copy of the cluster first, if this machine can read the nodes' files and has enough "
        "memory. A failure blocks the plan."
    ),
]
PinMinIsr = Annotated[
    bool,
    typer.Option(
        "--pin-min-insync-replicas",
        help="Before eligible.leader.replicas.version is raised, set the cluster-wide default of min.insync.replicas "
        "to the value that all brokers have now.",
    ),
]
SnapshotInterval = Annotated[
    int | None,
    typer.Option(
        help="Seconds. Lowers metadata.log.max.snapshot.interval.ms when each node restarts, so that Kafka writes a "
        "snapshot soon after finalizing.",
        min=5,
        max=3600,
    ),
]


def new_run_id() -> str:
    """Return a new unique run id. It also identifies the holder of the cluster's lock."""
    return f"{time.strftime('%Y%m%dT%H%M%S')}-shell-{secrets.token_hex(3)}"


def milliseconds(seconds: int | None) -> int | None:
    return None if seconds is None else 1000 * seconds


def require_name(change: str, approve_as: str | None, reason: str | None, *, remedy: str = "") -> None:
    """Raise UserError without an approver and a reason. `change`: its subject, such as `An upgrade`."""
    if not approve_as or not reason:
        raise UserError(f"{change} needs a named approval.", remedy=f"Add --approve-as NAME --reason TEXT{remedy}.")


@contextmanager
def open_ports(
    cluster: str, run: str | None, connection_file: Path | None
) -> Iterator[tuple[ClusterPorts, Settings, ClientSecurity | None]]:
    """Open the ports of a cluster, for an existing run or (`run` None) for a new one."""
    settings = Settings.from_environment()
    security = read_credentials(get_cluster(cluster, settings), connection_file)
    if run is not None:
        require_run(cluster, run, settings)
    with open_cluster_ports(cluster, run or new_run_id(), security, settings) as ports:
        yield ports, settings, security


def require_run(cluster: str, run: str, settings: Settings | None = None) -> None:
    """Raise UserError, with the newest runs of the cluster, for a run that it does not have."""
    known = list_runs(cluster, settings)
    if run not in known:
        raise UserError(
            f"Cluster {cluster} has no run {run}.",
            remedy=f"Runs of this cluster: {', '.join(known[:5]) or 'none'}.",
        )
