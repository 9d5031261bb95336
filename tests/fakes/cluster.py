"""A small cluster in memory: nodes stop, start and catch up in rounds. tests/fakes/ports.py shows it as ports."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

from kafka_rollout.base.internal_topics import GROUPS_TOPIC, coordinator_partition
from kafka_rollout.coordinator_logs.scan import Damage, ScanResult
from kafka_rollout.features.min_isr import MIN_ISR
from kafka_rollout.features.registrations import drops_zero_ranges, renews_registrations
from kafka_rollout.formats.log_types import RecordKind
from kafka_rollout.gates.control import Reading
from kafka_rollout.gates.coordinators import ids_for
from kafka_rollout.groups.group_records import GroupRecords
from kafka_rollout.metadata_log.losses import Loss
from kafka_rollout.metadata_log.record_types import MetadataRegistrations
from kafka_rollout.model.acls import Acl, AclDifferences
from kafka_rollout.model.broker_views import BrokerView
from kafka_rollout.model.claims import Claims
from kafka_rollout.model.config_values import ValueType
from kafka_rollout.model.configs import (
    ConfigProblem,
    ConfigSource,
    ConfigTable,
    DynamicConfigs,
    EffectiveConfigs,
    Setting,
)
from kafka_rollout.model.host_state import DirectoryFormat, HostState, Installation, StartFile, StartRecord
from kafka_rollout.model.listeners import ListenerCertificate
from kafka_rollout.model.log_directories import LogDirectory
from kafka_rollout.model.pace import NO_CLIENTS, Pace
from kafka_rollout.model.probes import Probe
from kafka_rollout.model.rights import MissingRight
from kafka_rollout.model.starts import ClassPlaces, NodeStart, PluginClass
from kafka_rollout.model.state import (
    CheckpointFile,
    GroupState,
    Movements,
    PartitionState,
    TransactionState,
)
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role
from kafka_rollout.model.unclean_elections import unclean_elections
from kafka_rollout.rehearsal.result import RehearsalResult
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import METADATA_VERSION, Catalogue, Release, VersionRange
from kafka_rollout.run.traffic import TrafficVerdict
from tests.fakes.clock import FakeClock
from tests.traffic import compared_traffic
from tools.demo.folder import PROJECT_ROOT

INCLUDE = PROJECT_ROOT / "include"
R340, R341, R391, R431 = (Release.parse(text) for text in ("3.4.0", "3.4.1", "3.9.1", "4.3.1"))


def make_spec(controllers: int = 3, brokers: int = 3, name: str = "fake") -> ClusterSpec:
    """Controllers 1…, brokers 11…, each with made-up addresses."""
    return ClusterSpec(
        name=name,
        approvers=("alice",),
        snapshot_interval_s=0.0,  # the files keep their interval, unless a test shortens it
        paces={Pace.FAST: NO_CLIENTS},
        nodes=(
            *(
                NodeSpec(
                    node_id=number,
                    name=f"controller-{number}",
                    roles=frozenset({Role.CONTROLLER}),
                    controller_address=f"127.0.0.1:{9000 + number}",
                )
                for number in range(1, controllers + 1)
            ),
            *(
                NodeSpec(
                    node_id=number,
                    name=f"broker-{number}",
                    roles=frozenset({Role.BROKER}),
                    broker_address=f"127.0.0.1:{9000 + number}",
                )
                for number in range(11, 11 + brokers)
            ),
        ),
    )


COMBINED = ClusterSpec(
    name="fake",
    approvers=("alice",),
    snapshot_interval_s=0.0,
    paces={Pace.FAST: NO_CLIENTS},
    nodes=tuple(
        NodeSpec(
            node_id=number,
            name=f"node-{number}",
            roles=frozenset({Role.BROKER, Role.CONTROLLER}),
            broker_address=f"127.0.0.1:{9000 + number}",
            controller_address=f"127.0.0.1:{9100 + number}",
        )
        for number in (1, 2, 3)
    ),
)


@dataclass
class FakeNode:
    """`running` None: no process. `behind` rounds until it is back in its ISRs."""

    installed: Release
    running: Release | None
    pid: int = 0
    installation: Installation = field(default_factory=Installation)
    behind: int = 0
    starts: list[StartRecord] = field(default_factory=list)
    config: dict[str, str] = field(default_factory=dict)
    in_use: dict[str, str] | None = None  # lines that the process has read; None: those of the file
    start_files: tuple[StartFile, ...] = ()
    jvm_arguments: tuple[str, ...] | None = ()  # None: they cannot be read
    checkpoints: list[CheckpointFile] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    log_begin: int = 0  # of the newest process


def _type_of(default: str) -> ValueType:
    """The type of a setting in the ConfigDef, as far as its default shows it."""
    return ValueType.DOUBLE if re.fullmatch(r"\d+\.\d+", default) else ValueType.UNKNOWN


class FakeCluster:
    """The world. Change its attributes to stage a test: `cannot_start`, `find_unlisted_controllers`, `silent`, `java`,
    …"""

    def __init__(  # noqa: PLR0915 - one statement for each fact of the cluster
        self,
        release: Release = R391,
        *,
        spec: ClusterSpec | None = None,
        finalized: Mapping[str, int] | None = None,
        catch_up_rounds: int = 1,
        catalogue: Catalogue | None = None,
    ) -> None:
        self.spec = spec or make_spec()
        self.catalogue = catalogue or load_catalogue(INCLUDE)
        self.catch_up_rounds = catch_up_rounds
        self.clock = FakeClock()
        facts = self.catalogue.get(release)
        self.finalized: dict[str, int] = dict(
            finalized
            if finalized is not None
            else {METADATA_VERSION: facts.features[METADATA_VERSION].latest_production}
        )
        self.epoch = 10
        self.nodes = {
            node.node_id: FakeNode(installed=release, running=release, pid=100 + node.node_id)
            for node in self.spec.nodes
        }
        self.standbys: set[int] = set()  # controllers that observe the quorum, and have no vote (KIP-853)
        self.leader: int | None = next((node.node_id for node in self.spec.controllers), None)
        self.leader_epoch = 1
        brokers = [node.node_id for node in self.spec.brokers]
        self.topics: dict[str, PartitionState] = {}
        for number in range(len(brokers)):
            order = brokers[number:] + brokers[:number]
            self.add_partition("orders", number, order[:3], min_isr=min(2, len(brokers)))
        self.outside: dict[str, list[Reading]] = {}  # of conditions from outside; the last reading stays
        self.outside_reads: list[str] = []
        self.outside_not_before: list[float] = []
        self.find_unlisted_controllers: set[int] = set()
        self.find_unlisted_brokers: set[int] = set()
        self.registrations: MetadataRegistrations | None = None  # None: the metadata logs cannot be read for it
        self.dropped: dict[int, frozenset[str]] = {}  # broker → features that its registration lacks
        self.in_zookeeper_mode = False
        self.groups: list[GroupState] = []
        self.traffic: TrafficVerdict | None = compared_traffic()  # what a check of the test traffic finds
        self.traffic_problem = ""  # why there is no result
        self.transactions: list[TransactionState] = []
        self.coordinator_answers: dict[str, str] = {}  # coordinator partition → error name; NONE for the others
        self.rehearsed: RehearsalResult | None = None  # None: its nodes have no files to copy
        self.silent: set[int] = set()  # nodes that run and do not answer
        self.cannot_start: set[tuple[int, Release]] = set()  # the process ends at once
        self.hangs_in_shutdown: set[int] = set()
        self.installation_warning = ""
        self.config_problems: dict[Release, tuple[str, ...]] = {}
        self.plugins: dict[int, tuple[PluginClass, ...]] = {}
        self.checked_starts: list[NodeStart] = []
        self.class_places: dict[int, ClassPlaces] = {}
        self.present_files: dict[str, float] = {"/etc/hostname": 0.0}
        """Path on every host → its last change; other files do not exist."""
        self.certificates: dict[int, tuple[ListenerCertificate, ...]] = {}
        self.certificate_addresses: dict[int, tuple[str, ...]] = {}
        self.jvm_problems: dict[int, tuple[str, ...]] = {}
        self.unresolved: dict[int, tuple[str, ...]] = {}
        self.log_folders: dict[tuple[int, str], LogDirectory] = {}  # by node id and path
        self.dynamic_configs = DynamicConfigs()
        self.inherit_min_isr: set[str] = set()  # topics without their own min.insync.replicas
        self.dynamic_config_problems: dict[Release, tuple[ConfigProblem, ...]] = {}
        self.probes: dict[Release, tuple[Probe, ...]] = {}
        self.missing_rights: list[MissingRight] = []
        self.validated: list[tuple[Release, DynamicConfigs]] = []  # by Kafka's own classes
        self.java = 17
        self.losses: list[Loss] = []  # of the metadata at a lower level
        self.late_losses: list[Loss] = []  # of metadata that was made after the last look at the log
        self.log_directories: dict[str, str] = {}  # id → path
        self.formats: dict[str, DirectoryFormat] | None = None
        self.unreadable: set[tuple[int, Release]] = set()  # metadata logs that a release could not replay
        self.lost_in_the_roll: set[str] = set()  # topics that are gone from the inventory
        self.log_starts: dict[str, int] = {}  # of partitions that do not begin at 0
        self.acls: set[Acl] = set()
        self.views: dict[int, BrokerView] = {}  # what a broker has beside the others
        self.acls_problem = ""  # why no broker can list the ACLs
        self.unread_contents: dict[str, str] = {}  # part of the contents that cannot be read → why
        self.acl_differences: dict[Release, AclDifferences] = {}  # from the release that runs
        self.files_at_start: dict[
            int, dict[str, str]
        ] = {}  # files that were changed on disk: the next start reads them
        self.group_configs: dict[str, dict[str, str]] = {}
        self.trims: list[int] = []
        self.no_log: set[int] = set()  # nodes without a readable metadata log
        self.replaced: dict[int, int] = {}  # nodes with a snapshot as their log → starts before
        self.backups: dict[int, str] = {}  # nodes with a backup of the log → the snapshot that was installed
        self.level_before: int | None = None  # of the metadata logs that are in the backups
        self.unreachable: set[int] = set()  # nodes whose hosts do not respond; their processes can run
        self.claims: dict[int, Claims] = {}  # on the hosts, whichever database a run has
        self.snapshot_level: int | None = None  # of the snapshot that was written last
        self.snapshot_epoch = 0
        self.with_snapshot: set[int] = set()  # nodes whose log begins with the snapshot, installed or fetched
        self.log_epochs: dict[int, int] = {}  # of a node's last record; 3 for the others
        self.known_epochs: dict[int, int] = {}  # in a node's quorum-state; 4 for the others
        self.stored_leaders: dict[int, int] = {}  # in a node's quorum-state; -1 for the others
        self.written_to_old_logs = False  # a leader with an old log was elected after the snapshot was written
        self.violations: list[str] = []  # of Raft and of the brokers' high watermarks, and unclean elections
        self.free_bytes: dict[int, int] = {}  # of the file systems of metadata logs; much for the others
        self.unseen: set[int] = set()  # nodes whose files the runtime does not see
        self.hosts: dict[int, HostState] = {}
        self.small_scan: ScanResult | None = None  # None: the coordinator logs are too long for this process
        self.written_since: list[RecordKind] = []  # to the coordinator logs, after they were scanned
        self.unread_replicas: list[Damage] = []  # of the coordinator logs
        self.logs_problem = ""  # why no coordinator log can be read
        self.group_records = GroupRecords(read_at=0.0, offsets=0)
        self.updates: list[tuple[dict[str, int], bool]] = []  # (targets, validate_only) that were accepted
        self.stops: list[int] = []
        self.on_prepare: Callable[[int], None] = lambda node_id: None  # called with a node before its stop
        self.on_started: Callable[[int], None] = lambda node_id: None  # called with a node after its start
        self.movements = Movements()
        self.rounds = 0
        self._next_pid = 1000
        self._guard = Lock()

    def add_partition(self, topic: str, partition: int, replicas: Sequence[int], *, min_isr: int = 1) -> None:
        state = PartitionState(
            topic=topic,
            partition=partition,
            leader=replicas[0],
            replicas=tuple(replicas),
            isr=tuple(replicas),
            min_insync_replicas=min_isr,
        )
        self.topics[state.name] = state

    def broker_value(self, node_id: int, name: str, default: str) -> str:
        """The effective value of a broker setting: of the node, of all brokers, of its file, or Kafka's own default."""
        dynamic = self.dynamic_configs
        file = self.nodes[node_id].config.get(name, default)
        return dynamic.brokers.get(node_id, {}).get(name, dynamic.all_brokers.get(name, file))

    def settings_in_use(self, node_id: int) -> dict[str, Setting]:
        """Kafka's defaults of the running release, the lines that the process has read, and dynamic values."""
        fake, dynamic = self.nodes[node_id], self.dynamic_configs
        defaults = {MIN_ISR: "1", **self.catalogue.get(fake.running or fake.installed).config_defaults}
        return {
            name: Setting(value, source, _type_of(defaults.get(name, "")))
            for source, values in (
                (ConfigSource.DEFAULT, defaults),
                (ConfigSource.FILE, fake.config if fake.in_use is None else fake.in_use),
                (ConfigSource.ALL_BROKERS, dynamic.all_brokers),
                (ConfigSource.NODE, dynamic.brokers.get(node_id, {})),
            )
            for name, value in values.items()
        }

    def effective(self) -> EffectiveConfigs:
        """All settings: Kafka's defaults of the running release, files, and dynamic values."""
        brokers: dict[str, dict[str, Setting]] = {}
        topics: dict[str, dict[str, Setting]] = {}
        for node in self.spec.brokers:
            fake = self.nodes[node.node_id]
            if fake.running is None or node.node_id in self.silent:
                continue
            brokers[str(node.node_id)] = self.settings_in_use(node.node_id)
        for partition in self.topics.values():
            own = {name: Setting(value, ConfigSource.TOPIC) for name, value in self.own_configs(partition).items()}
            broker = brokers.get(str(partition.replicas[0]), next(iter(brokers.values())))
            topics[partition.topic] = {MIN_ISR: broker[MIN_ISR], **own}
        return EffectiveConfigs(brokers=ConfigTable.of_resources(brokers), topics=ConfigTable.of_resources(topics))

    def own_configs(self, partition: PartitionState) -> dict[str, str]:
        """What is set for the topic of a partition."""
        own = {} if partition.topic in self.inherit_min_isr else {MIN_ISR: str(partition.min_insync_replicas)}
        return {**own, **self.dynamic_configs.topics.get(partition.topic, {})}

    def set_default(self, name: str, value: str) -> None:
        all_brokers = {**self.dynamic_configs.all_brokers, name: value}
        self.dynamic_configs = replace(self.dynamic_configs, all_brokers=all_brokers)

    def set_topic(self, topic: str, name: str, value: str) -> None:
        topics = self.dynamic_configs.topics
        own = {**topics.get(topic, {}), name: value}
        self.dynamic_configs = replace(self.dynamic_configs, topics={**topics, topic: own})

    def raise_elr(self) -> None:
        """What a controller does with a request that contains this feature (maybeGenerateElrSafetyRecords)."""
        if self.leader is not None and MIN_ISR not in self.dynamic_configs.all_brokers:
            self.set_default(MIN_ISR, self.nodes[self.leader].config.get(MIN_ISR, "1"))
        brokers = {
            node_id: {name: value for name, value in own.items() if name != MIN_ISR}
            for node_id, own in self.dynamic_configs.brokers.items()
        }
        self.dynamic_configs = replace(self.dynamic_configs, brokers=brokers)

    def is_served(self, topic: str, name: str) -> bool:
        """Whether the coordinator of a group or transactional id lists it: not while its partition moves."""
        size = sum(partition.topic == topic for partition in self.topics.values())
        place = f"{topic}-{coordinator_partition(name, size)}" if size else ""
        return self.coordinator_answers.get(place, "NONE") == "NONE"

    def partition_states(self) -> list[PartitionState]:
        """Partitions with their effective min ISR: of the topic, or of the broker that leads."""
        return [
            replace(p, min_insync_replicas=int(self.broker_value(p.replicas[0], MIN_ISR, "1")))
            if p.topic in self.inherit_min_isr
            else p
            for p in self.topics.values()
        ]

    def release_of(self, node_id: int) -> Release | None:
        return self.nodes[node_id].running

    def runs(self, node_id: int) -> bool:
        return self.nodes[node_id].running is not None

    @property
    def has_quorum(self) -> bool:
        return sum(map(self.runs, self.voters)) > len(self.voters) / 2

    @property
    def voters(self) -> list[int]:
        return [node.node_id for node in self.spec.controllers if node.node_id not in self.standbys]

    def register(self, node_id: int) -> None:
        """Register a broker with the active controller: one before 3.9 makes it leave out ranges with minimum 0."""
        release, leader = self.nodes[node_id].running, self.leader
        active = self.nodes[leader].running if leader is not None else None
        if release is None:
            return
        known = self.catalogue.get(release).features
        drops = active is not None and drops_zero_ranges(self.catalogue.get(active))
        self.dropped[node_id] = frozenset(name for name, facts in known.items() if drops and facts.supported.min == 0)

    @property
    def registered(self) -> dict[int, dict[str, VersionRange]]:
        """Broker → ranges in its registration."""
        releases = {
            node.node_id: self.nodes[node.node_id].running or self.nodes[node.node_id].installed
            for node in self.spec.brokers
        }
        return {
            node_id: {
                name: facts.supported
                for name, facts in self.catalogue.get(release).features.items()
                if name not in self.dropped.get(node_id, ())
            }
            for node_id, release in releases.items()
        }

    def raise_levels(self, levels: Mapping[str, int]) -> None:
        """Finalize levels. Brokers register again where metadata.version reaches 3.7-IV2."""
        before = self.finalized.get(METADATA_VERSION, 0)
        self.finalized = {name: level for name, level in {**self.finalized, **levels}.items() if level > 0}
        self.epoch += 1
        if renews_registrations(before, self.finalized.get(METADATA_VERSION, 0)):
            for node in self.spec.brokers:
                self.register(node.node_id)

    def stop(self, node_id: int) -> None:
        """Controlled shutdown: leaderships move away, the node leaves its ISRs (the last one stays in, leaderless)."""
        with self._guard:  # the nodes of a batch stop at the same time
            self._stop(node_id)

    def _stop(self, node_id: int) -> None:
        self.nodes[node_id].running = None
        self.stops.append(node_id)
        for name, partition in self.topics.items():
            isr = tuple(replica for replica in partition.isr if replica != node_id) or partition.isr
            leader = partition.leader
            if leader == node_id:
                leader = next((replica for replica in isr if replica != node_id and self.runs(replica)), -1)
            self.topics[name] = replace(partition, isr=isr, leader=leader)
        self._elect_controller()

    def start(self, node_id: int) -> None:
        with self._guard:  # nodes start at the same time
            self._start(node_id)

    def _start(self, node_id: int) -> None:
        node = self.nodes[node_id]
        self._next_pid += 1
        node.pid = self._next_pid
        node.log_begin = len(node.log)
        node.starts.append(StartRecord(release=node.installed, started_at=self.clock.now(), pid=node.pid))
        if (node_id, node.installed) in self.cannot_start:
            node.log.append(f"ERROR node {node_id} cannot start on {node.installed}")
            return
        node.running = node.installed
        node.config = self.files_at_start.pop(node_id, node.config)
        node.in_use = None
        node.behind = self.catch_up_rounds
        self._elect_controller()
        if self.spec.node(node_id).is_broker:
            self.register(node_id)

    def advance(self) -> None:
        """Let one round pass: started nodes come closer to being caught up."""
        self.rounds += 1
        for node_id, node in self.nodes.items():
            if node.running is None:
                continue
            if node.behind > 0:
                node.behind -= 1
            if node.behind == 0 and node_id not in self.silent:
                self._rejoin(node_id)

    def _rejoin(self, node_id: int) -> None:
        for name, partition in self.topics.items():
            if node_id not in partition.replicas:
                continue
            if partition.leader == -1 and node_id not in partition.isr:
                if not self.elects_unclean(partition.topic):
                    continue
                self.violations.append(f"{name}: node {node_id} was elected, and only {partition.isr} were in sync")
                partition = replace(partition, isr=(node_id,))  # noqa: PLW2901 - the new leader is its whole ISR
            isr = partition.isr if node_id in partition.isr else (*partition.isr, node_id)
            self.topics[name] = replace(
                partition, isr=isr, leader=node_id if partition.leader == -1 else partition.leader
            )

    def elects_unclean(self, topic: str) -> bool:
        """unclean.leader.election.enable of a topic, or of a controller."""
        elections = unclean_elections(
            self.spec, self.dynamic_configs, {node_id: node.config for node_id, node in self.nodes.items()}
        )
        return bool(elections.of(topic))

    def lose_power(self, node_id: int) -> None:
        with self._guard:
            self.nodes[node_id].running = None
            self._elect_controller()

    def _elect_controller(self) -> None:
        if not self.has_quorum:
            self.leader = None
        elif self.leader is None or not self.runs(self.leader):
            running = [node_id for node_id in self.voters if self.runs(node_id)]
            self.leader = max(running, key=lambda node_id: (self.log_epochs.get(node_id, 3), -node_id))
            self.leader_epoch += 1
        if self.leader is not None and self.snapshot_level is not None:
            self._replicate(self.leader)

    def _replicate(self, leader: int) -> None:
        """The running nodes take over the log of the leader. Once a snapshot is written, this must not lose records."""
        is_new = leader in self.with_snapshot
        running = [node_id for node_id in self.nodes if self.runs(node_id)]
        known = max(max(self.known_epochs.get(node_id, 4), self.log_epochs.get(node_id, 3)) for node_id in running)
        epoch = known if self.stored_leaders.get(leader) == leader else known + 1
        for node_id in running:
            if node_id in self.with_snapshot and not is_new:
                what = f"node {node_id} has the snapshot, and leader {leader} an old log"
                if self.spec.node(node_id).is_controller or self.nodes[node_id].behind:
                    # It exits: its log diverges below its high watermark. A broker that starts serves nothing.
                    self.nodes[node_id].running = None
                    continue
                self.violations.append(what)
            if is_new:
                self.with_snapshot.add(node_id)
            if self.spec.node(node_id).is_controller:
                self.log_epochs[node_id] = self.known_epochs[node_id] = epoch
                self.stored_leaders[node_id] = leader
        if is_new and self.written_to_old_logs:
            self.violations.append("a leader with the snapshot lost records of the old logs")
        self.written_to_old_logs = self.written_to_old_logs or not is_new
        if is_new or self.level_before is not None:
            self.finalized[METADATA_VERSION] = (self.snapshot_level if is_new else self.level_before) or 0


def lose_a_group_at_the_start_of(cluster: FakeCluster, broker: int) -> None:
    """A group of the broker is gone after its next start, and its log does not show the load of the partition."""
    brokers = [node.node_id for node in cluster.spec.brokers]
    for number in range(len(brokers)):
        replicas = [brokers[number], brokers[(number + 1) % len(brokers)]]
        cluster.add_partition(GROUPS_TOPIC, number, replicas, min_isr=1)
    own = next(iter(ids_for({brokers.index(broker)}, len(brokers))))
    cluster.groups.append(GroupState(group_id=own, type="classic", state="Stable"))
    start = cluster.start

    def lose(node_id: int) -> None:
        start(node_id)
        if node_id == broker:
            cluster.groups.clear()

    cluster.start = lose  # type: ignore[method-assign]
