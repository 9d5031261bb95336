"""The cluster as its inventory describes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from typing import Any, Final, Literal

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.model.pace import PACES, Pace, PaceNumbers

RuntimeName = Literal["local_process", "ssh_service", "none"]
NO_RUNTIME: Final = "none"
AppliesTo = Literal["before_stop", "after_start"]
FeatureApproval = Literal["always", "where_needed"]
ALWAYS: Final = "always"
SPARK_CONNECTION = "spark_default"
DAILY = "@daily"
PRESETS = {"@hourly": "{minute} * * * *", DAILY: "{minute} {hour} * * *", "@weekly": "{minute} {hour} * * 0"}
_NIGHT_HOURS = 6  # from midnight UTC
NEVER = "never"
NEWEST = "newest"
_BEFORE_PATH = re.compile(r"(-[A-Za-z]|[^/]*[=:,])?")  # for example -c, --config= or Dir::Etc=


class Role(StrEnum):
    """KRaft's process.roles."""

    BROKER = "broker"
    CONTROLLER = "controller"


SUFFIX = r"([._-][A-Za-z0-9._-]*)?"
"""What the name of a folder can have after that of its release, such as the build of a site."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCommand:
    """An operator's own command on a host, run by /bin/sh as the SSH user."""

    command: str
    timeout_s: float = 60.0
    """Seconds until it counts as failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSpec:
    """Kafka as a package of the host's distribution: one place on the host for all releases."""

    install: tuple[str, ...]
    check: tuple[str, ...] = ()
    jars: str = "/usr/share/java/kafka"
    """Folder of the jars of the installed release. The words of a command are a program and its arguments, which no
    shell reads, and which root runs; `{version}` is the version of the package. `check` (of a script; otherwise empty)
    succeeds if a version can be installed. `download` runs before the stop (empty: none), `repair` before a second try
    of a failed `install` (empty: none)."""
    download: tuple[str, ...] = ()
    repair: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Release as text → version of its package; empty: the release itself."""
    timeout_s: float = 600.0
    """Seconds until one of these commands counts as failed."""

    def version(self, release: object) -> str | None:
        """Return the version of the package of a release; None if the inventory has none."""
        return self.versions.get(str(release)) if self.versions else str(release)

    @property
    def root_paths(self) -> tuple[str, ...]:
        """The programs that root runs, and the files in their arguments, for every entry of `versions`."""
        fixed = [path for path in self._paths if "{version}" not in path]
        return tuple(dict.fromkeys((*fixed, *self.version_paths)))

    @property
    def version_paths(self) -> tuple[str, ...]:
        """Those of `root_paths` that differ by version: a host need not have all of them."""
        paths = [path for path in self._paths if "{version}" in path]
        return tuple(path.replace("{version}", version) for path in paths for version in self.versions.values())

    @property
    def _paths(self) -> tuple[str, ...]:
        words = (*self.install, *self.check, *self.download, *self.repair)
        return tuple(path for word in words for path in paths_in(word))


def paths_in(word: str) -> tuple[str, ...]:
    """Return the absolute paths in a word of a command. Raises ValueError for a relative path or a URL."""
    before, slash, after = word.partition("/")
    paths = re.split("[=:,]", slash + after) if slash else []
    is_file = any(re.match(r"\.|.*\.(deb|rpm)$", part) for part in re.split("[=:,]", before))
    is_prefix = not slash or _BEFORE_PATH.fullmatch(before)
    if is_file or not is_prefix or not all(re.match("/(?!/)", path) for path in paths):
        raise ValueError(
            f"`{word}` has a relative path or a URL: write the absolute path of a file, or the name of a package"
        )
    return tuple(path.rstrip("/") or "/" for path in paths if path != "/dev/null")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    """How a node is installed on its host, for the runtime ssh_service."""

    host: str
    """As SSH reaches it."""
    unit: str = "kafka.service"
    """The systemd unit, with its suffix."""
    user: str = "kafka"
    """User of the process, as which files of the node are read."""
    installation: str = "/opt/kafka_2.13-{release}"
    """Folder of a release, with `{release}`."""
    symlink: str = "/opt/kafka"
    """Points to the folder of the installed release."""
    configuration_file: str = "/etc/kafka/server.properties"
    """server.properties."""
    managed_elsewhere: bool = False
    """Other software writes the configuration, so the tool does not."""
    configuration_writer: Literal["root", "user"] = "root"
    """Root, or `user`: `user` owns the folder of the file and writes it."""
    stop_spares_others: bool = False
    """Its owner knows that a stop of the unit reaches no other Kafka of the host, where the tool cannot tell."""
    log_file: str | None = None
    """server.log; None: the journal has the log."""
    archive: str | None = None
    """Of a release on this machine, with `{release}`, for hosts without this release."""
    archive_sha512: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Release → SHA-512 of its archive."""
    install: HostCommand | None = None
    """The operator's command that installs `{release}` on a host."""
    package: PackageSpec | None = None
    """Instead of `installation`, `symlink`, `archive` and `install`."""
    before_stop: tuple[HostCommand, ...] = ()
    """Commands of the operator."""
    after_start: tuple[HostCommand, ...] = ()
    """Commands of the operator."""

    def folder(self, release: object) -> str:
        """Return the folder of a release."""
        return self.package.jars if self.package else self.installation.replace("{release}", str(release))

    def led_to(self, release: object, folder: str) -> ServiceSpec | None:
        """Return this service with a folder as that of a release, for a link that came from there. None if the folder
        is not that of the release with a suffix: the rights of a run permit no other one."""
        if self.package is not None:
            return None
        suffix = folder.removeprefix(self.folder(release))
        is_own = folder.startswith(self.folder(release)) and re.fullmatch(SUFFIX, suffix) is not None
        return replace(self, installation=self.installation + suffix) if is_own else None

    @property
    def release_parent(self) -> str:
        """The folder with the folders of releases, or the folder of the package's jars."""
        return self.package.jars if self.package else self.installation.rpartition("/")[0] or "/"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """One node of the inventory."""

    node_id: int
    name: str
    roles: frozenset[Role]
    broker_address: str | None = None
    """`host:port`, or None if the node does not have the role."""
    controller_address: str | None = None
    """`host:port`, or None if the node does not have the role."""
    prometheus_url: str | None = None
    """/metrics of the exporter."""
    jolokia_url: str | None = None
    """Base URL of the agent."""
    rack: str | None = None
    directory: str | None = None
    """The home folder of the node for the runtime local_process (server.properties, libs of the release, data, logs).
    """
    service: ServiceSpec | None = None
    """Its installation for the runtime ssh_service."""

    @property
    def is_controller(self) -> bool:
        return Role.CONTROLLER in self.roles

    @property
    def is_broker(self) -> bool:
        return Role.BROKER in self.roles

    @property
    def commands_s(self) -> float:
        """The longest time in seconds that the operator's commands of a node step take before they count as failed."""
        if self.service is None:
            return 0.0
        own = sum(one.timeout_s for one in (*self.service.before_stop, *self.service.after_start))
        package = self.service.package
        return own + (0.0 if package is None else 4 * package.timeout_s)  # check, download, install, repair

    @property
    def commands_before_stop_s(self) -> float:
        """The longest time in seconds that `commands_before_stop` take before they count as failed."""
        return sum(one.timeout_s for one in self.commands_before_stop)

    @property
    def commands_before_stop(self) -> tuple[HostCommand, ...]:
        """The operator's commands before a stop (NodeChanges.prepare_stop)."""
        return () if self.service is None else self.service.before_stop

    @property
    def commands_after_start(self) -> tuple[HostCommand, ...]:
        """The operator's commands after a start (NodeChanges.finish_start)."""
        return () if self.service is None else self.service.after_start

    @property
    def commands_after_start_s(self) -> float:
        """The longest time in seconds that `commands_after_start` take before they count as failed."""
        return sum(one.timeout_s for one in self.commands_after_start)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideCondition:
    """A condition of the operator: a Prometheus query, or a command on the machine of this process."""

    name: str
    query: str = ""
    command: tuple[str, ...] = ()
    """A program and its arguments, which no shell reads."""
    requires: str = ""
    """Comparison, for example `< 0.01`; empty: a command is met by exit code 0."""
    applies_to: tuple[AppliesTo, ...] = ("before_stop",)
    """Gates of nodes."""
    for_s: float = 0.0
    """Time during which all checks must pass."""
    interval_s: float = 10.0
    """Least time between two readings."""
    timeout_s: float = 10.0
    """Of one reading."""

    @property
    def title(self) -> str:
        """Name of the condition in gates and findings. No other condition of a gate begins like this."""
        return f"condition {self.name}"


@dataclass(frozen=True, kw_only=True)  # no slots: it keeps its index of nodes
class ClusterSpec:
    """One cluster of the inventory.

    Only `approvers` can answer (empty: every user whom the channel permits). With `four_eyes`, the operator who started
    a run cannot approve it.
    """

    name: str
    nodes: tuple[NodeSpec, ...]
    runtime: RuntimeName = "local_process"
    """How its nodes are reached."""
    connection_id: str | None = None
    """The Airflow Connection with the credentials (None: PLAINTEXT without credentials)."""
    controller_connection_id: str | None = None
    """The same for the controller listener, if its settings differ."""
    traffic_connection_id: str | None = None
    """For the test traffic."""
    ssh_connection_id: str | None = None
    """The Airflow Connection to the hosts (None: the SSH configuration of the user)."""
    owner: str = "kafka-platform"
    approvers: tuple[str, ...] = ()
    four_eyes: bool = False
    shell_approvers: Mapping[str, str] = field(default_factory=dict)
    """Operating system's user → the approver who uses it."""
    paces: Mapping[Pace, PaceNumbers] = field(default_factory=dict)
    """Its own numbers for a pace, in place of those of PACES."""
    window: str = ""
    """When nodes can be stopped, as in `base/maintenance.py`; empty: always."""
    freeze_days: tuple[str, ...] = ()
    """Days on which no node is stopped, as in `base/maintenance.py`."""
    gate_timeout_s: float = 1800.0
    """Without the soak."""
    max_under_replicated: int | None = None
    """Partitions of other nodes at a stop; None without a limit."""
    one_rack_at_a_time: bool = True
    """All brokers of a batch are in one rack."""
    snapshot_interval_s: float = 300.0
    """metadata.log.max.snapshot.interval.ms after an upgrade, if levels are raised later; 0: that of the files."""
    approval_timeout_hours: float = 24.0
    feature_approval: FeatureApproval = ALWAYS
    """Which changes of features need an approval: all, or those that Kafka cannot undo."""
    scan_schedule: str = DAILY
    """A cron expression in UTC, one of PRESETS, or NEVER."""
    tasks: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of its tasks in Airflow: pool, queue, executor and priority_weight, as far as it has its own."""
    scan_pool: str | None = None
    """The pool of scans with Spark."""
    spark_connection_id: str = SPARK_CONNECTION
    """The Airflow Connection of the Spark master."""
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    """Spark settings of its scans."""
    release_overrides: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Release as text → configuration key → value, which the run sets with that release."""
    apache_releases: Mapping[str, str] = field(default_factory=dict)
    """Version that a node reports → Apache release by which it is evaluated (for builds of vendors)."""
    check_release: str = NEWEST
    """Target of the scheduled check, NEWEST or NEVER."""
    scan_releases: tuple[str, ...] = ()
    """Releases that scheduled scans evaluate in addition to those that matter for the running release."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Our name of a metric → name and labels of the operator's exporter, `name{our label=label}`."""
    prometheus_connection_id: str | None = None
    """The Connection to Prometheus, which has the values of queries in `conditions`."""
    conditions: tuple[OutsideCondition, ...] = ()

    def pace(self, pace: Pace) -> PaceNumbers:
        """Return what a pace means in this cluster."""
        return self.paces.get(pace, PACES[pace])

    @property
    def scan_times(self) -> str:
        """Return when the coordinator logs are scanned: five cron fields in UTC, or NEVER.

        Of a preset, each cluster has a minute of its own, so that a fleet does not begin all its scans at once.
        """
        if self.scan_schedule not in PRESETS:
            return self.scan_schedule
        number = int.from_bytes(sha256(self.name.encode()).digest()[:4])
        hour, minute = divmod(number % (60 * _NIGHT_HOURS), 60)
        return PRESETS[self.scan_schedule].format(minute=minute, hour=hour)

    def node(self, node_id: int) -> NodeSpec:
        if (node := self._by_id.get(node_id)) is not None:
            return node
        raise UserError(
            f"Node {node_id} is not in the inventory of cluster {self.name}.",
            remedy=f"The inventory lists nodes {', '.join(str(n.node_id) for n in self.nodes)}.",
        )

    @cached_property
    def _by_id(self) -> Mapping[int, NodeSpec]:
        return {node.node_id: node for node in self.nodes}

    @property
    def manages_nodes(self) -> bool:
        """False for a cluster whose hosts cannot be reached: only what its nodes answer can be observed."""
        return self.runtime != NO_RUNTIME

    def refuse_unmanaged(self) -> None:
        """Raise RefusedError if the nodes cannot be stopped, replaced and started."""
        if not self.manages_nodes:
            raise RefusedError(
                f"Cluster {self.name} has runtime {self.runtime}, so its nodes cannot be stopped, replaced or started.",
                remedy="Use --dry-run for the plan. To replace nodes, set runtime to local_process or ssh_service in "
                "the inventory.",
            )

    @property
    def brokers(self) -> tuple[NodeSpec, ...]:
        return tuple(node for node in self.nodes if node.is_broker)

    @property
    def controllers(self) -> tuple[NodeSpec, ...]:
        return tuple(node for node in self.nodes if node.is_controller)

    @property
    def brokers_alone(self) -> tuple[NodeSpec, ...]:
        """Brokers that are not controllers."""
        return tuple(node for node in self.nodes if not node.is_controller)

    @property
    def controllers_first(self) -> tuple[NodeSpec, ...]:
        """All nodes in the order in which a stopped cluster is started."""
        return (*self.controllers, *self.brokers_alone)

    @property
    def connection_ids(self) -> tuple[str | None, str | None, str | None]:
        """Return the Connections of the brokers, the controllers and the test traffic."""
        return self.connection_id, self.controller_connection_id, self.traffic_connection_id

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.broker_address for node in self.brokers if node.broker_address)

    @property
    def bootstrap_controllers(self) -> str:
        return ",".join(node.controller_address for node in self.controllers if node.controller_address)
