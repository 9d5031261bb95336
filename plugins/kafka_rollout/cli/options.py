"""Options that the commands share, and opening the ports of a cluster."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_rollout.cli.shell_user import shell_responder
from kafka_rollout.composition.cluster_ports import open_cluster_ports
from kafka_rollout.composition.clusters import get_cluster
from kafka_rollout.composition.credentials import read_credentials
from kafka_rollout.composition.records import list_runs, run_folder
from kafka_rollout.domain.model.errors import UserError
from kafka_rollout.settings import Settings
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.common.take_over import take_over_run

if TYPE_CHECKING:
    from kafka_rollout.composition.credentials import ClientSecurity

ClusterName = Annotated[str, typer.Option("--cluster", "-c", help="Name in the inventory (see `clusters`).")]
Target = Annotated[str, typer.Option("--to", help="Target release, for example 4.3.1.")]
RunId = Annotated[str | None, typer.Option("--run", help="Run to resume or read; default: a new run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ConnectionFile = Annotated[
    Path | None,
    typer.Option(
        "--connection-file", help=("JSON file with credentials and TLS settings, mode 0600; default: PLAINTEXT.")
    ),
]
Approved = Annotated[str | None, typer.Option("--approve-as", help="Name of the approver.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Reason, as a sentence; stored in the run history.")]
TakeOver = Annotated[
    bool,
    typer.Option("--take-over", help="Continue a DAG's run from this shell, as the approver of --approve-as."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask at the terminal; the named approver has decided.")]
Soak = Annotated[
    float, typer.Option("--soak", help="Seconds in which every check must pass before the next node.", min=0)
]
Looks = Annotated[int, typer.Option("--looks", help="Number of consecutive checks that must pass.", min=1)]
Interval = Annotated[float, typer.Option("--interval", help="Seconds between two checks.", min=0)]
Timeout = Annotated[
    float,
    typer.Option("--timeout", help=("Gate timeout in seconds: if the gate has not passed by then, it fails."), min=1),
]


SnapshotInterval = Annotated[
    int | None,
    typer.Option(
        "--snapshot-interval",
        help=(
            "Seconds: lowers the metadata snapshot interval when each node restarts, so that Kafka writes a "
            "snapshot soon after finalizing."
        ),
        min=5,
        max=3600,
    ),
]


def new_run_id() -> str:
    """Return a new unique run id. It also identifies the holder of the cluster's lock."""
    return f"{time.strftime('%Y%m%dT%H%M%S')}-shell-{secrets.token_hex(3)}"


def milliseconds(seconds: int | None) -> int | None:
    return None if seconds is None else 1000 * seconds


def continue_run(ports: ClusterPorts, approve_as: str | None, *, take_over: bool) -> None:
    """Take the run over where it is a DAG's; raises RefusedError unless an approver asked for that."""
    take_over_run(ports, approve_as, shell_responder(), wanted=take_over)


@contextmanager
def open_ports(
    cluster: str, run: str | None, connection_file: Path | None
) -> Iterator[tuple[ClusterPorts, Settings, ClientSecurity | None]]:
    settings = Settings.from_environment()
    security = read_credentials(get_cluster(cluster, settings), connection_file)
    if run is not None and run not in list_runs(cluster, settings):
        raise UserError(
            f"Cluster {cluster} has no run {run}.",
            remedy=f"Runs of this cluster: {', '.join(list_runs(cluster, settings)[:5]) or 'none'}.",
        )
    with open_cluster_ports(cluster, run or new_run_id(), security, settings) as ports:
        yield ports, settings, security


def ledger_folder(settings: Settings, cluster: str) -> Path:
    return run_folder(cluster, "ledger", settings) / "ledger"
