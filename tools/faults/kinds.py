"""The kinds of faults: what each does, to what, and for how long. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

LOCAL, HOSTS = "local", "hosts"
RUNTIMES = (LOCAL, HOSTS)


class Kind(StrEnum):
    KILL_NODE = "kill-node"
    PAUSE_NODE = "pause-node"
    KILL_TOOL = "kill-tool"
    PAUSE_TOOL = "pause-tool"
    STOP_TOOL = "stop-tool"
    CUT_SSH = "cut-ssh"
    CUT_BROKER = "cut-broker"
    PARTITION_CONTROLLER = "partition-controller"
    REBOOT_HOST = "reboot-host"
    FILL_DISK = "fill-disk"
    STOP_DATABASE = "stop-database"
    TURN_CLOCK = "turn-clock"


class Hits(StrEnum):
    """What a fault acts on."""

    TOOL = "tool"
    DATABASE = "database"
    ANY_NODE = "node"
    BROKER = "broker"
    CONTROLLER = "controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """`seconds`: shortest and longest duration. `weight`: how often the kind is drawn. `impairs`: the node cannot be
    counted as a replica or a voter while the fault lasts. `known_after_s`: a check of the cluster that begins this long
    after the fault must see it; None: a check cannot see it as long as the node works."""

    text: str
    hits: Hits
    seconds: tuple[float, float]
    weight: int
    impairs: bool = False
    known_after_s: float | None = None
    runtimes: tuple[str, ...] = RUNTIMES
    isolated: bool = False  # on local processes, needs root and the namespaces of `isolation`


# A broker is fenced broker.session.timeout.ms (6 s) after its last heartbeat; until then it is in sync and serves.
_FENCED_S = 6.0
FACTS = MappingProxyType(
    {
        Kind.KILL_NODE: Facts(
            text="SIGKILL for a node",
            hits=Hits.ANY_NODE,
            seconds=(1, 6),
            weight=4,
            impairs=True,
            known_after_s=4,
        ),
        Kind.PAUSE_NODE: Facts(
            text="SIGSTOP for a node, then SIGCONT",
            hits=Hits.ANY_NODE,
            seconds=(2, 15),
            weight=5,
            impairs=True,
            known_after_s=_FENCED_S + 4,
        ),
        Kind.KILL_TOOL: Facts(text="SIGKILL for the command", hits=Hits.TOOL, seconds=(0, 0), weight=5),
        Kind.PAUSE_TOOL: Facts(text="SIGSTOP for the command, then SIGCONT", hits=Hits.TOOL, seconds=(2, 15), weight=4),
        Kind.STOP_TOOL: Facts(text="Ctrl-C for the command", hits=Hits.TOOL, seconds=(0, 0), weight=2),
        Kind.CUT_SSH: Facts(
            text="no packet from the worker reaches sshd of a host",
            hits=Hits.ANY_NODE,
            seconds=(2, 20),
            weight=5,
            runtimes=(HOSTS,),
        ),
        Kind.CUT_BROKER: Facts(
            text="a broker cannot reach the controllers",
            hits=Hits.BROKER,
            seconds=(3, 15),
            weight=4,
            impairs=True,
            known_after_s=_FENCED_S + 6,
            isolated=True,
        ),
        Kind.PARTITION_CONTROLLER: Facts(
            text="a controller and the other controllers cannot reach each other",
            hits=Hits.CONTROLLER,
            seconds=(3, 15),
            weight=4,
            impairs=True,
            known_after_s=_FENCED_S + 6,
            isolated=True,
        ),
        Kind.REBOOT_HOST: Facts(
            text="all processes of a host are killed, and it boots",
            hits=Hits.ANY_NODE,
            seconds=(0, 0),
            weight=2,
            impairs=True,
            known_after_s=4,
            runtimes=(HOSTS,),
        ),
        Kind.FILL_DISK: Facts(
            text="the disk with a node's data is full",
            hits=Hits.ANY_NODE,
            seconds=(2, 10),
            weight=3,
            impairs=True,
            isolated=True,
        ),
        Kind.STOP_DATABASE: Facts(
            text="PostgreSQL is killed and started again, or another process holds the lock of the SQLite file",
            hits=Hits.DATABASE,
            seconds=(2, 40),
            weight=3,
        ),
        Kind.TURN_CLOCK: Facts(
            text="the clock of the command jumps by up to 50 minutes, and back",
            hits=Hits.TOOL,
            seconds=(3, 15),
            weight=2,
        ),
    }
)


def kinds_of(runtime: str, *, isolated: bool = True) -> tuple[Kind, ...]:
    """The kinds that a runtime can inject. `isolated`: the namespaces of `isolation` can be used."""
    return tuple(
        kind
        for kind, facts in FACTS.items()
        if runtime in facts.runtimes and (isolated or not facts.isolated or runtime == HOSTS)
    )
