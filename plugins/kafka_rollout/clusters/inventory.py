"""The inventory: one YAML file for each cluster (include/clusters/*.yaml).

It contains no secrets: credentials are in the Airflow Connection `connection_id`. A possible credential and an unknown
key are rejected. `make reference` writes cluster.schema.json and docs/inventory-keys.md from it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, date, datetime
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import yaml
from croniter import CroniterBadDateError, croniter
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.loopback import is_loopback
from kafka_rollout.base.maintenance import parse_maintenance
from kafka_rollout.base.outside_text import MOST_INT32
from kafka_rollout.base.system.files import read_regular
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.wording import few
from kafka_rollout.clusters.entries import (
    FORMS,
    ConditionEntry,
    Host,
    ServiceEntry,
    dump_services,
    find_credential,
    service_of,
)
from kafka_rollout.model.pace import PACES, Pace, PaceNumbers
from kafka_rollout.model.topology import (
    ALWAYS,
    DAILY,
    NEVER,
    NEWEST,
    NO_RUNTIME,
    PRESETS,
    SPARK_CONNECTION,
    ClusterSpec,
    FeatureApproval,
    NodeSpec,
    OutsideCondition,
    Role,
    RuntimeName,
    ServiceSpec,
)
from kafka_rollout.nodes.metric_names import OWN_METRIC, MetricName, OwnMetric
from kafka_rollout.releases.facts import Release

_UNIQUE = ("id", "name", "broker_address", "controller_address", "prometheus_url", "jolokia_url")
_NAME_LINE = re.compile(r"^[\"']?name[\"']?\s*:\s*[\"']?([\w-]+)[\"']?\s*(?:#|$)", re.MULTILINE)
_HASHED = re.compile(r"(?<!\S)[HhRr](?![A-Za-z])")  # random and hashed fields, which croniter has and Airflow has not


def _as_text(value: object) -> object:
    """Convert configuration values and user ids to text; YAML parses `true` and `3` as other types."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


NAME = re.compile(r"^[a-z0-9][a-z0-9_-]{0,62}$")
Name = Annotated[str, StringConstraints(pattern=NAME.pattern)]
_PORT = "[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
HOST_AND_PORT = re.compile(rf"^(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):({_PORT})$")
HostAndPort = Annotated[str, StringConstraints(pattern=HOST_AND_PORT.pattern)]
_HTTP_URL = r"^https?://[^\s@]+$"
HttpUrl = Annotated[str, StringConstraints(pattern=_HTTP_URL)]
_RELEASE = r"^[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}$"
ReleaseText = Annotated[str, StringConstraints(pattern=_RELEASE)]
_FORMS = {
    NAME.pattern: "lower-case letters, digits, - and _",
    HOST_AND_PORT.pattern: "host:port, for example kafka-1:9092",
    _HTTP_URL: "an http or https address without credentials",
    _RELEASE: "a release, for example 4.3.1",
    OWN_METRIC: "the name of a metric, for example kafka_server_levels{name=feature}",
    **FORMS,
}
Text = Annotated[str, BeforeValidator(_as_text)]


Day = Annotated[str, BeforeValidator(lambda value: value.isoformat() if type(value) is date else value)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NodeEntry(_Strict):
    """One node. A relative `directory` is relative to the folder of the inventory file."""

    id: Annotated[int, Field(ge=0, le=MOST_INT32, strict=True, description="node.id")]
    name: Annotated[Name, Field(description="name of the node in messages, reports and task ids")]
    roles: Annotated[list[Role], Field(min_length=1, max_length=2, description="process.roles")]
    broker_address: Annotated[
        HostAndPort | None, Field(description="host:port of the broker listener that the tool queries")
    ] = None
    controller_address: Annotated[
        HostAndPort | None, Field(description="host:port of the controller listener; each node is queried itself")
    ] = None
    prometheus_url: Annotated[HttpUrl | None, Field(description="/metrics of the JMX exporter")] = None
    jolokia_url: Annotated[HttpUrl | None, Field(description="base URL of the Jolokia agent")] = None
    rack: Annotated[str | None, Field(description="broker.rack")] = None
    directory: Annotated[
        str | None, Field(description="for local_process: home of the node, with server.properties, data and logs")
    ] = None
    host: Annotated[Host | None, Field(description="for ssh_service: the host of the node")] = None
    service: Annotated[
        ServiceEntry | None, Field(description="for ssh_service: overrides of the service of the cluster")
    ] = None

    @model_validator(mode="after")
    def _addresses_fit_roles(self) -> NodeEntry:
        for role, key, address in (
            (Role.BROKER, "broker_address", self.broker_address),
            (Role.CONTROLLER, "controller_address", self.controller_address),
        ):
            if role not in self.roles and address is not None:
                raise ValueError(f"node {self.name} is no {role} and must not have a {key}")
        return self


class PaceEntry(_Strict):
    """What a pace means in one cluster. What it does not name is as in `PACES`."""

    soak_s: Annotated[
        float | None,
        Field(ge=0, le=7 * 86_400, description="seconds during which every check must pass before the next stop"),
    ] = None
    checks: Annotated[
        int | None, Field(ge=1, le=100, strict=True, description="consecutive checks that must pass after a start")
    ] = None
    interval_s: Annotated[float | None, Field(ge=0.1, le=60, description="seconds between two checks")] = None

    def numbers(self, pace: Pace) -> PaceNumbers:
        return replace(PACES[pace], **self.model_dump(exclude_none=True))


class TasksEntry(_Strict):
    """Where Airflow runs the tasks of a cluster."""

    pool: Annotated[Text | None, Field(min_length=1, description="pool of Airflow, which must exist")] = None
    queue: Annotated[Text | None, Field(min_length=1, description="queue of the executor")] = None
    executor: Annotated[Text | None, Field(min_length=1, description="one of `[core] executor`")] = None
    priority_weight: Annotated[int | None, Field(ge=1, strict=True, description="priority of the tasks")] = None


class ClusterEntry(_Strict):
    """One cluster."""

    name: Annotated[Name, Field(description="name of the cluster, and part of its DAG ids (`kafka_upgrade_<name>`)")]
    runtime: Annotated[
        RuntimeName,
        Field(
            description="how a node is stopped, changed and started: local_process (a process of this machine), "
            "ssh_service (a systemd unit over SSH), or none (a read-only cluster)"
        ),
    ] = "local_process"
    connection_id: Annotated[
        str | None, Field(description="Airflow Connection with the SASL and TLS settings; without it, plain text")
    ] = None
    controller_connection_id: Annotated[
        str | None, Field(description="the Connection of the controller listener, if its settings differ")
    ] = None
    traffic_connection_id: Annotated[
        str | None, Field(description="the Connection of the test traffic, if it has a user of its own")
    ] = None
    ssh_connection_id: Annotated[
        str | None, Field(description="Airflow Connection to the hosts; on the command line: the SSH configuration")
    ] = None
    service: Annotated[ServiceEntry | None, Field(description="how nodes are installed (ssh_service)")] = None
    owner: Annotated[str, Field(description="owner of the DAGs")] = "kafka-platform"
    approvers: Annotated[
        list[Text],
        Field(
            description="users who can answer approvals: user ids of Airflow. The simple auth manager has names. FAB "
            "has numbers (Security → List Users): a name matches no user"
        ),
    ] = []
    four_eyes: Annotated[bool, Field(strict=True, description="true: the user who started a run cannot approve it")] = (
        False
    )
    shell_approvers: Annotated[
        dict[Text, Text],
        Field(
            description="operating system's user: approver. With this key or four_eyes, only these users can answer "
            "at a shell, each as this approver"
        ),
    ] = {}
    paces: Annotated[
        dict[Pace, PaceEntry],
        Field(description="numbers of this cluster for the paces careful, normal and fast; default: those of `pace`"),
    ] = {}
    window: Annotated[
        str,
        Field(
            description="nodes are stopped only in this time: cron expression of its begin, duration and time zone, "
            "for example 0 22 * * Mon-Fri 6h Europe/Berlin; several windows are separated by ';'. The run pauses "
            "before the next node when the window ends, or when a node step no longer fits, keeps the lock, and "
            "continues in the next window. A rollback does not wait. Default: always"
        ),
    ] = ""
    freeze_days: Annotated[
        list[Day],
        Field(
            description="days on which no node is stopped: a date such as 2026-12-24, or a range such as "
            "2026-12-20..2027-01-03, in the time zone of the window, or in UTC"
        ),
    ] = []
    gate_timeout_s: Annotated[
        float,
        Field(
            ge=0.6,
            le=7 * 86_400,
            description="seconds until a gate that has not passed stops the run, in addition to the soak: a DAG asks "
            "an approver how to continue, a command exits and can be continued",
        ),
    ] = 1800.0
    max_under_replicated: Annotated[
        int | None,
        Field(
            ge=0,
            strict=True,
            description="a node is stopped only if at most this number of partitions lack a replica of another node. "
            "Default: no limit; each partition of the node keeps min.insync.replicas in any case",
        ),
    ] = None
    one_rack_at_a_time: Annotated[
        bool,
        Field(
            strict=True,
            description="true: all brokers of a batch are in one rack (broker.rack). If a broker has no rack, or the "
            "sizes of two racks differ by more than one broker, brokers restart one at a time",
        ),
    ] = True
    snapshot_interval_s: Annotated[
        float,
        Field(
            ge=0,
            le=3600,
            description="seconds between two snapshots of the metadata while levels are still to be raised: an upgrade "
            "lowers metadata.log.max.snapshot.interval.ms to it in the nodes' files, where it stays, because "
            "finalizing waits for a snapshot of each node. 0: the files keep their interval",
        ),
    ] = 300.0
    approval_timeout_hours: Annotated[
        float,
        Field(
            gt=0,
            le=30 * 24,
            description="without an answer in this time, the task that asks fails. A timeout never counts as approval",
        ),
    ] = 24.0
    feature_approval: Annotated[
        FeatureApproval,
        Field(
            description="which changes of features need an approval: always, or where_needed: only if a level is "
            "lowered or deleted, or cannot be undone"
        ),
    ] = ALWAYS
    scan_schedule: Annotated[
        str,
        Field(
            description="when the coordinator logs are scanned: five cron fields (UTC), @hourly, @daily, @weekly "
            "(at a minute of the cluster's own, by night) or never"
        ),
    ] = DAILY
    tasks: Annotated[
        TasksEntry, Field(description="where Airflow runs the tasks of this cluster; default: as other DAGs")
    ] = TasksEntry()
    scan_pool: Annotated[
        Text | None,
        Field(min_length=1, description="pool of Airflow for the scans with Spark, so that few run at once"),
    ] = None
    spark_connection_id: Annotated[Text, Field(min_length=1, description="Airflow Connection of the Spark master")] = (
        SPARK_CONNECTION
    )
    spark_conf: Annotated[
        dict[Text, Text],
        Field(description="Spark settings of the scans, such as spark.cores.max; they win, except over what protects"),
    ] = {}
    release_overrides: Annotated[
        dict[ReleaseText, dict[str, Text]],
        Field(description="configuration that the run sets with a release; it stays on later ones, until a rollback"),
    ] = {}
    scan_releases: Annotated[
        list[ReleaseText],
        Field(
            description="releases that a scheduled scan evaluates in addition to the running one and those on its paths"
        ),
    ] = []
    check_release: Annotated[
        ReleaseText | Literal["newest", "never"],
        Field(description="target release of the scheduled check: a release, newest (of the catalogue), or never"),
    ] = "newest"
    apache_releases: Annotated[
        dict[Text, ReleaseText],
        Field(description="version that a node reports: Apache release, for builds of vendors"),
    ] = {}
    metrics: Annotated[
        dict[MetricName, OwnMetric],
        Field(
            description="name of a metric in this tool: its name{label=value} in a Prometheus exporter with own rules"
        ),
    ] = {}
    prometheus_connection_id: Annotated[
        str | None, Field(description="Airflow Connection (HTTP) to Prometheus, for the queries of `conditions`")
    ] = None
    conditions: Annotated[
        list[ConditionEntry],
        Field(
            description="conditions from outside: Prometheus queries and commands that the gates of nodes check, "
            "not the stop of all nodes or controllers in an offline or live downgrade"
        ),
    ] = []
    nodes: Annotated[list[NodeEntry], Field(min_length=1, description="all nodes")]

    @field_validator("scan_schedule")
    @classmethod
    def _is_a_schedule(cls, text: str) -> str:
        if text == NEVER or text in PRESETS:
            return text
        if len(text.split()) != 5 or _HASHED.search(text) or not croniter.is_valid(text):
            raise ValueError(f"'{text}' is not a schedule: write five cron fields, @hourly, @daily, @weekly or never")
        try:
            croniter(text, datetime(2000, 1, 1, tzinfo=UTC)).get_next(float)
        except CroniterBadDateError:
            raise ValueError(f"'{text}' is a day that never comes: write {NEVER}, or another day") from None
        return text

    @model_validator(mode="after")
    def _has_usable_windows(self) -> ClusterEntry:
        try:
            parse_maintenance(self.window, self.freeze_days)
        except UserError as error:
            raise ValueError(str(error)) from None
        return self

    @model_validator(mode="after")
    def _has_usable_conditions(self) -> ClusterEntry:
        names = [one.name for one in self.conditions]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"two conditions have the name {twice[0]}")
        queries = [one.name for one in self.conditions if one.query]
        if queries and self.prometheus_connection_id is None:
            raise ValueError(f"condition {queries[0]} is a query: set prometheus_connection_id of the cluster")
        return self

    @model_validator(mode="after")
    def _whole(self) -> ClusterEntry:
        if not all(name.strip() for name in (*self.approvers, *self.shell_approvers)):
            raise ValueError("an approver has no name")
        if self.four_eyes and len({name.strip().lower() for name in self.approvers}) == 1:
            raise ValueError(f"four_eyes needs a second approver besides {self.approvers[0]}")
        releases = [Release.parse(text) for text in self.release_overrides]
        if twice := [str(one) for one in releases if releases.count(one) > 1]:
            raise ValueError(f"release_overrides has release {twice[0]} twice")
        for name in self.shell_approvers.values():
            if self.approvers and name not in self.approvers:
                raise ValueError(f"shell_approvers names {name}, who is not one of approvers")
        for what in (*_UNIQUE, "directory"):
            seen = set[tuple[object, str]]()
            for node in self.nodes:
                value = getattr(node, what)
                one = _as_one(what, value, node.host or "")
                if value is not None and one in seen:
                    raise ValueError(f"two nodes have the {what} {value}")
                seen.add(one)
        hidden = self.runtime == NO_RUNTIME  # clients cannot reach the controllers of a managed service
        for role in Role:
            if not any(role in node.roles for node in self.nodes) and not (hidden and role is Role.CONTROLLER):
                raise ValueError(f"the cluster has no {role}")
        for node in self.nodes:
            _check_addresses(node, hidden)
        if self.runtime == "local_process":
            for node in self.nodes:
                _check_local(node)
        if self.runtime == "ssh_service":
            self._check_services()
        return self

    def services(self) -> list[ServiceSpec]:
        """The installation of each node; raises ValueError for a node without a host."""
        found = []
        for node in self.nodes:
            if node.host is None:
                raise ValueError(f"node {node.name} needs a host, because its runtime is ssh_service")
            found.append(service_of(node.host, node.roles, self.service, node.service))
        return found

    def _check_services(self) -> None:
        seen: dict[tuple[str, str], str] = {}
        paths: dict[tuple[str, str], str] = {}
        services = [replace(service, host=_one_name(service.host)) for service in self.services()]
        hosts = Counter(service.host for service in services)
        for service in services:
            if service.package and hosts[service.host] > 1:
                raise ValueError(f"host {service.host} has two nodes and one package: a new release would change both")
        for node, service in zip(self.nodes, services, strict=True):
            other = seen.setdefault((service.host, service.unit), node.name)
            if other != node.name:
                raise ValueError(f"nodes {other} and {node.name} are both {service.unit} on host {service.host}")
            own = {"configuration_file": service.configuration_file}
            if service.package is None:
                own["symlink"] = service.symlink  # a new release of one node would be that of the other at its restart
            for key, path in own.items():
                if (other := paths.setdefault((service.host, path), node.name)) != node.name:
                    raise ValueError(
                        f"nodes {other} and {node.name} on host {service.host} have the same {key}, {path}. Each needs "
                        "one of its own, with which its unit starts"
                    )


def _one_name(host: str) -> str:
    """Return the name of a host in one spelling: DNS has no capital letters, and a last dot changes nothing."""
    return host.lower().rstrip(".")


def _as_one(what: str, value: object, host: str) -> tuple[object, str]:
    """Return what is equal for two values that mean the same: a URL has its host in small letters, and no last slash.

    An agent on the loopback interface of its host has the same URL on each host.
    """
    if not what.endswith("_url") or not isinstance(value, str):
        return (value.lower() if what.endswith("_address") and isinstance(value, str) else value), ""
    parts = urlsplit(value)
    url = f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}?{parts.query}"
    return url, _one_name(host) if _is_loopback(value) else ""


def _check_addresses(node: NodeEntry, hidden: bool) -> None:
    """`hidden`: a broker that is also a controller needs no address as a controller."""
    if Role.BROKER in node.roles and node.broker_address is None:
        raise ValueError(f"node {node.name} needs a broker_address")
    if Role.CONTROLLER in node.roles and node.controller_address is None and not (hidden and node.broker_address):
        raise ValueError(f"node {node.name} needs a controller_address")


def _check_local(node: NodeEntry) -> None:
    if node.directory is None:
        raise ValueError(f"node {node.name} needs a directory, because its runtime is local_process")
    for address in (node.broker_address, node.controller_address, node.prometheus_url, node.jolokia_url):
        if address is not None and not _is_loopback(address):
            raise ValueError(
                f"node {node.name} has {address}, but the local_process runtime only uses loopback addresses"
            )


def _is_loopback(address: str) -> bool:
    host = urlsplit(address if "://" in address else f"//{address}").hostname or ""
    return is_loopback(host)


_KEYS = frozenset(
    {*ClusterEntry.model_fields, *NodeEntry.model_fields, *ServiceEntry.model_fields, *ConditionEntry.model_fields}
)
_MERGE, _INT = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:int"
_OF_PYDANTIC = re.compile(r"\[key\]|constrained-\w+|function-.*|.*\[.*\]")  # of its own types, not of the file


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML in which a duplicate key is an error.

    A merge key (`<<`) is one too: merges of merges make a small file that takes gigabytes to read.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key is not plain text", key.start_mark)
            if key.tag == _MERGE:
                raise yaml.constructor.ConstructorError(
                    None, None, "the merge key '<<' is not supported; write the lines out", key.start_mark
                )
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key '{key.value}' is a duplicate", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)

    def construct_plain_int(self, node: yaml.ScalarNode) -> int:
        """Read a decimal number alone: YAML 1.1 reads 010 as 8, and 1:30 as 90."""
        if re.fullmatch(r"[-+]?(0|[1-9][0-9]*)", node.value) is None:
            problem = f"{node.value[:20]} is no decimal number; write it without a zero before it, or in quotes"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return int(node.value)


_UniqueKeyLoader.add_constructor(_INT, _UniqueKeyLoader.construct_plain_int)


def load_cluster(path: Path) -> ClusterSpec:
    """Read one inventory file; raises UserError naming file, key and remedy."""
    try:
        text = read_regular(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        remedy = "Save it as UTF-8." if isinstance(error, UnicodeDecodeError) else "Use the path of a file."
        raise UserError(f"The inventory {path} cannot be read: {reason}.", remedy=remedy) from None
    try:
        data = yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 — a SafeLoader that also refuses duplicate keys
        found = find_credential(data)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date or a number that does not exist
        raise UserError(
            f"The inventory {path} is not YAML: {_yaml_problem(error)}.", remedy="Correct the YAML."
        ) from None
    except RecursionError:
        raise UserError(f"The inventory {path} is nested too deeply.", remedy="Correct it.") from None
    if not isinstance(data, dict):
        raise UserError(
            f"The inventory {path} describes no cluster.", remedy=("Use include/clusters/local.yaml as an example.")
        )
    if found:
        raise UserError(
            f"The inventory {path} contains a possible credential at {found}.",
            remedy="Store it in the Airflow Connection and set connection_id to this Connection. A command can "
            "read it from a file.",
        )
    try:
        return _spec(ClusterEntry.model_validate(data), path.parent)
    except ValidationError as error:
        sentence, remedy = _first_problem(error)
        raise UserError(f"The inventory {path} is wrong: {sentence}.", remedy=remedy) from None


def _load_unless_known(path: Path) -> ClusterSpec:
    """Read an inventory file; one that has not changed since the last call is not parsed again."""
    try:
        found = path.stat()
    except OSError:
        return load_cluster(path)
    return _load_version(path, (found.st_ino, found.st_size, found.st_mtime_ns))


@lru_cache(maxsize=256)
def _load_version(path: Path, version: tuple[int, ...]) -> ClusterSpec:
    return load_cluster(path)


def list_readable_clusters(settings: Settings | None = None) -> tuple[dict[str, ClusterSpec], dict[Path, UserError]]:
    """Return the readable clusters by name, and the errors of the other files."""
    folder = (settings or Settings.from_environment()).clusters
    if not folder.is_dir():
        raise UserError(
            f"The folder {folder} for inventories does not exist.",
            remedy=("Set KAFKA_ROLLOUT_CLUSTERS to an existing folder."),
        )
    read: dict[Path, ClusterSpec] = {}
    problems: dict[Path, UserError] = {}
    for path in sorted((*folder.glob("*.yaml"), *folder.glob("*.yml"))):
        try:
            read[path] = _load_unless_known(path)
        except UserError as error:
            problems[path] = error
        except Exception as error:  # a file with any error does not affect the DAGs of other clusters
            problems[path] = UserError(
                f"The inventory {path} cannot be read: {type(error).__name__}: {error}.", remedy="Correct it."
            )
    problems |= _doubtful(read, tuple(problems))
    return {spec.name: spec for path, spec in sorted(read.items(), key=_name_of) if path not in problems}, problems


def _name_of(entry: tuple[Path, ClusterSpec]) -> str:
    return entry[1].name


def _doubtful(read: Mapping[Path, ClusterSpec], unread: Sequence[Path]) -> dict[Path, UserError]:
    """Return the files that have a cluster in common with another file: one of them is a copy, without the approvers
    and hosts of today.
    """
    found: dict[Path, UserError] = {}
    named = {path: _names_in(path) for path in unread}
    for name in {spec.name for spec in read.values()}:
        same = [path for path, spec in read.items() if spec.name == name]
        files = [*same, *(path for path, names in named.items() if name in names)]
        if len(files) > 1:
            sentence = f"Several inventories describe cluster {name}: {few(map(str, files))}."
            remedy = "Move all but the right one out of the folder, or give a copy another ending, such as .yaml.old."
            found |= dict.fromkeys(same, UserError(sentence, remedy=remedy))
    return found


def get_cluster(name: str, settings: Settings | None = None) -> ClusterSpec:
    """Return the cluster of that name; raise UserError with the existing names, also if its file cannot be read."""
    settings = settings or Settings.from_environment()
    clusters, problems = list_readable_clusters(settings)
    if name in clusters:
        return clusters[name]
    if problem := find_problem(name, problems):
        raise problem
    unread = f", and files that cannot be read: {', '.join(path.name for path in problems)}" if problems else ""
    meant = next(iter(get_close_matches(name, clusters, n=1)), "")
    raise UserError(
        f"The inventory contains no cluster {name}.",
        remedy=(f"Did you mean {meant}? " if meant else "")
        + f"{settings.clusters} has {few(clusters, limit=20) or 'none'}{unread}.",
    )


def list_named_clusters(settings: Settings | None = None) -> dict[str, ClusterSpec | UserError]:
    """Return cluster → inventory, or why it cannot be used, of all clusters that the files of the folder name.

    A run goes on, and waits for people, whatever happens to the file of its cluster.
    """
    clusters, problems = list_readable_clusters(settings)
    named: dict[str, ClusterSpec | UserError] = {**name_problems(problems), **clusters}
    return dict(sorted(named.items()))


def name_problems(problems: Mapping[Path, UserError]) -> dict[str, UserError]:
    """Return cluster → why its file cannot be used, for each cluster that such a file can be about."""
    return {name: problem for path, problem in problems.items() for name in _names_in(path) if NAME.fullmatch(name)}


def find_problem(name: str, problems: Mapping[Path, UserError]) -> UserError | None:
    """Return why the file of a cluster cannot be used; None if no such file is about this cluster."""
    found = [problem for path, problem in problems.items() if name in _names_in(path)]
    return found[-1] if found else None  # that there are several files is said last


def _names_in(path: Path) -> frozenset[str]:
    """Return the clusters that a file that cannot be used can be about: its own name, and the name in its text."""
    try:
        text = read_regular(path).decode(errors="replace")
    except (OSError, UserError):
        text = ""
    return frozenset({path.stem, *_NAME_LINE.findall(text)})


def dump_cluster(spec: ClusterSpec) -> str:
    """The YAML text that load_cluster reads back as the same cluster."""
    data = asdict(spec)
    shared, own = dump_services(spec.nodes)
    for node, service, known in zip(data["nodes"], own, spec.nodes, strict=True):
        node |= {"id": node.pop("node_id"), "roles": sorted(node["roles"]), "service": service or None}
        node["host"] = known.service.host if known.service is not None else None
    data["service"] = shared or None
    entry = ClusterEntry.model_validate(data)
    return yaml.safe_dump(entry.model_dump(mode="json", exclude_none=True), sort_keys=False, width=120)


def json_schema() -> str:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **ClusterEntry.model_json_schema()}
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def _spec(entry: ClusterEntry, folder: Path) -> ClusterSpec:
    data = entry.model_dump(exclude={"service": True, "nodes": {"__all__": {"host", "service"}}})
    services = entry.services() if entry.runtime == "ssh_service" else [None] * len(entry.nodes)
    nodes = []
    for node, service in zip(data.pop("nodes"), services, strict=True):
        if node["directory"]:
            node["directory"] = str((folder / Path(node["directory"]).expanduser()).resolve())
        nodes.append(NodeSpec(node_id=node.pop("id"), roles=frozenset(node.pop("roles")), service=service, **node))
    data["approvers"] = tuple(entry.approvers)
    data["tasks"] = entry.tasks.model_dump(exclude_none=True)
    data["freeze_days"] = tuple(entry.freeze_days)
    data["paces"] = {pace: one.numbers(pace) for pace, one in entry.paces.items()}
    data["conditions"] = tuple(OutsideCondition(**one.model_dump()) for one in entry.conditions)
    data["release_overrides"] = {str(Release.parse(key)): value for key, value in entry.release_overrides.items()}
    data["scan_releases"] = tuple(str(Release.parse(text)) for text in entry.scan_releases)
    data["check_release"] = (
        entry.check_release if entry.check_release in (NEWEST, NEVER) else str(Release.parse(entry.check_release))
    )
    data["apache_releases"] = {key: str(Release.parse(value)) for key, value in entry.apache_releases.items()}
    return ClusterSpec(**data, nodes=tuple(nodes))


def _first_problem(error: ValidationError) -> tuple[str, str]:
    problem: Any = error.errors(include_url=False)[0]
    where = ""
    for part in problem["loc"]:
        if isinstance(part, str) and _OF_PYDANTIC.fullmatch(part):
            continue
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else str(part)
    match problem["type"]:
        case "extra_forbidden":
            word = str(problem["loc"][-1])
            begins = [key for key in _KEYS if len(key) > 3 and word.startswith(key)]  # hostname is host, not name
            meant = next(iter(begins or get_close_matches(word, _KEYS, n=1)), "")
            remedy = f"Did you mean {meant}?" if meant else "Remove it, or correct its name."
            return f"{where} is not a key of an inventory", remedy
        case "string_pattern_mismatch":
            form = _FORMS.get(problem["ctx"]["pattern"], "another text (docs/inventory.md)")
            return f"{where} must be {form}", "Correct it."
        case "string_type" if isinstance(problem["input"], int | float | date):
            is_key = problem["loc"][-1] == "[key]"
            return f"{'a key of ' if is_key else ''}{where} must be text", "Write it in quotes."
        case "missing":
            return f"{where} is missing", "Use include/clusters/local.yaml as an example."
        case "value_error":
            text = problem["msg"].removeprefix("Value error, ")
            return (f"at {where}, {text}" if where else text), "Correct it and repeat the command."
        case _:
            message = re.sub(r"^\w+ should ", "must ", problem["msg"].partition(" after validation")[0])
            return f"{where} {message[0].lower()}{message[1:]}", "Example: include/clusters/local.yaml."


def _yaml_problem(error: yaml.YAMLError | ValueError) -> str:
    if isinstance(error, ValueError):
        return str(error).partition(";")[0]
    mark = getattr(error, "problem_mark", None)
    place = f" in line {mark.line + 1}" if mark is not None else ""
    return f"{getattr(error, 'problem', None) or 'unreadable'}{place}"
