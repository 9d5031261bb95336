"""Checks of each node's configuration, dynamic values, Java and host for its coming releases, and of an inventory.

Kafka's own classes validate the configuration when the plan is made. Immediately before a stop they validate it again
if it changed: the running process never reads the file again, but the next process would fail.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain

from kafka_rollout.base.errors import (
    CredentialsError,
    NotObservableError,
    RefusedError,
    RolloutError,
    TransientError,
    UserError,
)
from kafka_rollout.base.findings import Checked, Finding, Severity, UnknownValue, Verdict, find_new, unknown, unknown_by
from kafka_rollout.base.internal_topics import COORDINATOR_TOPICS
from kafka_rollout.base.json_forms import from_json, to_json
from kafka_rollout.base.wording import count, few
from kafka_rollout.control.holds import find_outside
from kafka_rollout.model.configs import ConfigProblem, ConfigSource, DynamicConfigs, NodeConfigs, with_inventory_values
from kafka_rollout.model.host_state import DirectoryIdentity, HostState
from kafka_rollout.model.log_directories import DEFAULTS, data_directories, metadata_directory
from kafka_rollout.model.plan import ConfigChange, Lowering, ReleaseStep
from kafka_rollout.model.probes import Probe
from kafka_rollout.model.quorum_addresses import Address
from kafka_rollout.model.rights import RIGHT_MISSING, find_rights_of_runs
from kafka_rollout.model.starts import reads_more
from kafka_rollout.model.state import ClusterState, PartitionState, ProcessState
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.model.unclean_elections import ENABLE, UNKNOWN_ELECTIONS, UncleanElections, unclean_elections
from kafka_rollout.observation.cluster_ports import ClusterPorts, ReadPorts, at_once
from kafka_rollout.observation.run import ReadRun, Run
from kafka_rollout.planning.findings.advisories import (
    AdvisoryFacts,
    advisory_findings,
    changing_defects,
    judge_advisories,
)
from kafka_rollout.planning.findings.agreement import Directories, NextStart, agreement_findings
from kafka_rollout.planning.findings.authentication import (
    AUTHENTICATION_CHECK,
    authentication_findings,
    find_accepted,
    has_sasl,
)
from kafka_rollout.planning.findings.changed_settings import CHANGED_SETTINGS_CHECK, changed_setting_findings
from kafka_rollout.planning.findings.cluster_state import NODE_DOWN
from kafka_rollout.planning.findings.configuration import (
    JAVA_UNKNOWN,
    config_findings,
    effective_config,
    java_findings,
    java_maximum_findings,
    planned_configs,
)
from kafka_rollout.planning.findings.dynamic_configs import (
    DYNAMIC_CONFIGURATION_CHECK,
    dynamic_config_findings,
    find_dropped,
    find_removed_settings,
    retention_findings,
    tiered_storage_findings,
    unread_config_finding,
)
from kafka_rollout.planning.findings.hosts import (
    CONFIGURATION_FIXED,
    HOST_DISK_FULL,
    HOST_READ_ONLY,
    HOST_REFUSED,
    HOST_RIGHT_MISSING,
    HOST_UNREACHABLE,
    HOSTS_CHECK,
    UNIT_NOT_RELOADED,
    host_problems,
)
from kafka_rollout.planning.findings.jvm_options import JVM_OPTION_CODES
from kafka_rollout.planning.findings.jvm_properties import (
    JVM_PROPERTIES_CHECK,
    jvm_findings,
    jvm_option_findings,
    needs_jvm_arguments,
)
from kafka_rollout.planning.findings.log_folders import (
    LOG_FOLDERS_CHECK,
    NAME_DIRECTORIES,
    log_folder_findings,
)
from kafka_rollout.planning.findings.new_settings import (
    NEW_SETTINGS_CHECK,
    find_new_settings,
    names_to_explain,
    new_setting_findings,
)
from kafka_rollout.planning.findings.not_observable import not_observable, unresolved_dynamic_findings
from kafka_rollout.planning.findings.package_scripts import PACKAGE_CHANGES_ACCESS
from kafka_rollout.planning.findings.required_units import REQUIRED_UNIT_DOWN
from kafka_rollout.planning.findings.security_labels import SECURITY_LABEL_DIFFERS
from kafka_rollout.planning.findings.start_commands import START_COMMAND
from kafka_rollout.planning.findings.start_paths import START_PATH_CODES
from kafka_rollout.planning.findings.start_scripts import START_SCRIPT_EDITED
from kafka_rollout.planning.findings.starts import ObservedStarts, start_findings
from kafka_rollout.planning.findings.stops import STOP_REACHES_OTHERS
from kafka_rollout.planning.findings.unclean_elections import (
    UNCLEAN_CHECK,
    find_stale_replicas,
    outage_findings,
    unclean_election_findings,
    unknown_unclean_elections,
)
from kafka_rollout.planning.findings.unit_starts import UNIT_NOT_STARTABLE
from kafka_rollout.planning.findings.unreachable import (
    IP_QUOTAS_CHECK,
    THROTTLES_CHECK,
    ip_quota_findings,
    names_in_quotas,
    quota_findings,
    throttle_findings,
)
from kafka_rollout.planning.observation import PlanObservation
from kafka_rollout.planning.plan_checks import NO_RESTART, unknown_responses
from kafka_rollout.preparation.listener_certificates import check_certificates
from kafka_rollout.preparation.next_starts import fingerprint, observe_starts
from kafka_rollout.preparation.unknowns import judged
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.projections.runs import has_acted


def node_configs(ports: ReadPorts) -> dict[int, Mapping[str, str]]:
    """Return the current configuration of every node; without nodes whose configuration is not observable."""

    def read(node: NodeSpec) -> Mapping[str, str] | None:
        with suppress(NotObservableError):
            return ports.runtime.config(node)
        return None

    found = zip(ports.cluster.nodes, at_once(read, ports.cluster.nodes), strict=True)
    return {node.node_id: config for node, config in found if config is not None}


def readable_configs(
    ports: ReadPorts, nodes: Sequence[NodeSpec]
) -> tuple[dict[int, Mapping[str, str]], tuple[UnknownValue, ...]]:
    """Return the configuration of nodes as far as their hosts respond, and which are unknown."""

    def read(node: NodeSpec) -> Mapping[str, str] | tuple[UnknownValue, ...]:
        try:
            return ports.runtime.config(node)
        except (TransientError, RefusedError, UserError) as error:
            what = file_of(node.node_id)
            return unknown_by(error, what, f"The {what} is unknown")

    found = list(zip(nodes, at_once(read, nodes), strict=True))
    configs = {node.node_id: config for node, config in found if not isinstance(config, tuple)}
    return configs, tuple(one for _, unread in found if isinstance(unread, tuple) for one in unread)


def file_of(node_id: int) -> str:
    """Return the subject of an unknown configuration."""
    return f"file of node {node_id}"


def node_directories(ports: ClusterPorts, configs: Mapping[int, Mapping[str, str]]) -> Directories:
    """Return the identities of every node's directories, and keep them for the checks before the stops."""
    known = [node for node in ports.cluster.nodes if node.node_id in configs]
    found = zip(known, at_once(lambda node: _directories(ports, node, configs[node.node_id]), known), strict=True)
    directories = {node.node_id: identities for node, identities in found if identities}
    ports.run.attach(_DIRECTORIES, {str(node_id): to_json(list(found)) for node_id, found in directories.items()})
    return directories


def _directories(ports: ReadPorts, node: NodeSpec, config: Mapping[str, str]) -> tuple[DirectoryIdentity, ...]:
    """Return the identities of the node's directories; none if the runtime or a right hides them.

    Raises TransientError if the host does not respond.
    """
    with suppress(RefusedError, UserError):
        formats = ports.runtime.directory_formats(node, config) or {}
        return tuple(one.identity for one in formats.values() if one.identity is not None)
    return ()


def recheck_agreement(
    run: ReadRun,
    state: ClusterState,
    release: Release,
    stops: NodeSpec | None = None,
    *,
    files: NodeConfigs | None = None,
) -> tuple[Finding, ...]:
    """Compare the nodes' files again, because one can have changed since the plan. `release`: of the next start.

    The directories are those of the plan, except those of the node that `stops`. `files`: default those of all nodes.
    """
    configs = {
        node_id: effective_config(node_id, config, run.plan.config_changes, release)
        for node_id, config in (node_configs(run.ports) if files is None else files).items()
    }
    planned = dict(run.history.attachment(_DIRECTORIES) or {})
    directories = {
        int(node_id): tuple(from_json(DirectoryIdentity, one) for one in found) for node_id, found in planned.items()
    }
    if stops is not None and stops.node_id in configs:
        directories[stops.node_id] = _directories(run.ports, stops, configs[stops.node_id])
    facts = run.ports.catalogue.get(release) if release in run.ports.catalogue else None
    return agreement_findings(
        NextStart(cluster=run.cluster, state=state, configs=configs, directories=directories, facts=facts)
    )


def java_versions(
    ports: ReadPorts, releases: Sequence[Release], nodes: Sequence[NodeSpec] | None = None
) -> dict[int, int]:
    """Return Java's feature version by node for its start on one of the releases; default: all nodes."""
    asked = ports.cluster.nodes if nodes is None else nodes

    def read(node: NodeSpec) -> int | None:
        # Missing means unknown, which is a blocker of the plan, or not observable.
        with suppress(TransientError, UserError, NotObservableError):
            return ports.runtime.java_version(node, releases)
        return None

    versions = zip(asked, at_once(read, asked), strict=True)
    return {node.node_id: version for node, version in versions if version is not None}


def check_java(ports: ReadPorts, release: Release, configs: NodeConfigs) -> tuple[Finding, ...]:
    """Return the findings for the Java of nodes that start on `release` with these files."""
    return java_maximum_findings(ports.cluster, ports.catalogue, {release: configs}, java_versions(ports, (release,)))


def check_hosts(
    ports: ReadPorts,
    releases: Sequence[Release],
    nodes: Sequence[NodeSpec] | None = None,
    *,
    changes: Sequence[ConfigChange] = (),
    restarts: bool = False,
    returns: bool = False,
) -> Checked:
    """Check the hosts of nodes (default: all) that will run `releases`. `changes`, `restarts`, `returns`: as in
    `NodeRuntime.host`."""
    asked = ports.cluster.nodes if nodes is None else nodes
    unread: list[UnknownValue] = []

    def read(node: NodeSpec) -> HostState | None:
        try:
            return ports.runtime.host(node, releases, changes=changes, restarts=restarts, returns=returns)
        except NotObservableError as error:
            unread.extend(unknown(f"node {node.node_id}", error.sentence))
            return None

    seen = zip(asked, at_once(read, asked), strict=True)
    hosts = {node.node_id: host for node, host in seen if host is not None}
    if not returns and any(host.own_name is not None for host in hosts.values()):
        hosts = _with_names(hosts, _read_addresses(ports))
    managed, runtime = ports.cluster.manages_nodes, f"The runtime {ports.cluster.runtime}"
    return HOSTS_CHECK.ran(
        host_problems(ports.cluster, ports.catalogue, hosts, releases, changes=changes, restarts=restarts),
        unless=f"{runtime} has no hosts of its own." if managed and not hosts and not unread else "",
        unknown=sorted(unread, key=lambda one: one.subject)
        if managed
        else unknown("hosts", f"{runtime} sees no hosts."),
    )


def _read_addresses(ports: ReadPorts) -> Mapping[int, Address]:
    """Return broker → the address that clients get. A cluster that does not respond is another finding."""
    with suppress(TransientError, UserError, RefusedError):
        return ports.admin.registered().broker_addresses
    return {}


def _with_names(hosts: Mapping[int, HostState], addresses: Mapping[int, Address]) -> dict[int, HostState]:
    """Return the hosts with the names under which the cluster knows listeners that have no host."""
    found = dict(hosts)
    for node_id, address in addresses.items():
        host = hosts.get(node_id)
        if host is not None and host.own_name is not None and address.port in host.own_name.ports:
            found[node_id] = replace(host, registered_as=address.host)
    return found


def check_rollback_on_host(run: ReadRun, release: Release, node: NodeSpec) -> tuple[Finding, ...]:
    """Return the findings about paths of the node's next start that lead elsewhere on `release`, about options,
    commands and lines of start scripts that it does not have, about a unit of which they are unknown, about units that
    it requires, about labels with which it does not start, about file systems on which the rollback cannot write,
    about scripts of packages that can close what it uses, and about a stop that reaches another Kafka."""
    wanted = (
        *(*START_PATH_CODES, *JVM_OPTION_CODES, START_SCRIPT_EDITED, START_COMMAND),
        *(UNIT_NOT_RELOADED, UNIT_NOT_STARTABLE, REQUIRED_UNIT_DOWN, HOST_READ_ONLY, HOST_DISK_FULL),
        *(SECURITY_LABEL_DIFFERS, CONFIGURATION_FIXED, PACKAGE_CHANGES_ACCESS),
        STOP_REACHES_OTHERS,
    )
    codes = {code.text for code in wanted}
    hosts = check_hosts(run.ports, (release,), (node,), changes=run.plan.config_changes, returns=True)
    found = judged(run.plan, [hosts])
    return tuple(one for one in found if one.code in codes)


def check_log_folders(ports: ReadPorts, releases: Sequence[Release], configs: NodeConfigs) -> Checked:
    """Check the names in the log directories of nodes for the releases on which they will start. `configs`: the
    current configuration of these nodes."""
    if not releases:
        return LOG_FOLDERS_CHECK.ran(unless=NO_RESTART)
    if not ports.cluster.manages_nodes:
        sees = f"The runtime {ports.cluster.runtime} sees no log directories."
        return LOG_FOLDERS_CHECK.ran(unknown=unknown("log directories", sees))
    nodes = [node for node in ports.cluster.nodes if node.node_id in configs]

    def read(node: NodeSpec) -> tuple[Finding, ...] | RolloutError:
        config = {**DEFAULTS, **configs[node.node_id]}
        try:
            if not data_directories(config) or metadata_directory(config) is None:
                raise RefusedError(f"The log directories of node {node.node_id} are unknown.", remedy=NAME_DIRECTORIES)
            found = ports.runtime.log_folders(node, config)
            refused = tuple(log_folder_findings(node, config, found, releases))
            # A replica that moves can be in two directories, and a segment that Kafka removes cannot be read just then.
            if refused:
                again = ports.runtime.log_folders(node, config)
                found = {path: names.seen_in(again[path]) for path, names in found.items()}
                refused = tuple(log_folder_findings(node, config, found, releases))
            return refused
        except RolloutError as error:
            return error

    found: list[Finding] = []
    unread: list[UnknownValue] = []
    for node, answer in zip(nodes, at_once(read, nodes), strict=True):
        if isinstance(answer, RolloutError):
            what = f"The names in the log directories of node {node.node_id} are unknown"
            unread += unknown_by(answer, f"node {node.node_id}", what)
        else:
            found += answer
    return LOG_FOLDERS_CHECK.ran(found, unknown=unread)


def check_log_folders_again(ports: ReadPorts, step: ReleaseStep, node: NodeSpec, files: NodeConfigs) -> Checked:
    """Read them before a stop. `files`: of nodes, as they were just read; that of another node is read here."""
    return check_log_folders(ports, (step.to_release,), {node.node_id: _file_of(ports, node, files)})


def _file_of(ports: ReadPorts, node: NodeSpec, files: NodeConfigs) -> Mapping[str, str]:
    found = files.get(node.node_id)
    return ports.runtime.config(node) if found is None else found


def check_jvm(
    ports: ReadPorts,
    releases: Sequence[Release],
    configs: Mapping[int, Mapping[str, str]],
    changes: Sequence[ConfigChange],
) -> Checked:
    """Check the properties of the JVM that `releases` need. `changes`: of the plan, by release.

    The arguments of nodes are read only if their configuration needs such a property.
    """

    def try_options(node_id: int) -> tuple[str, ...] | RolloutError:
        try:
            return ports.runtime.jvm_problems(ports.cluster.node(node_id), releases)
        except RolloutError as error:
            return error

    refused: dict[int, tuple[str, ...]] = {}
    untried: list[UnknownValue] = []
    for node_id, answer in zip(configs, at_once(try_options, configs if releases else ()), strict=False):
        if isinstance(answer, RolloutError):
            untried += unknown_by(answer, f"node {node_id}")
        else:
            refused[node_id] = answer
    wanted = {
        node_id: {release: effective_config(node_id, config, changes, release) for release in releases}
        for node_id, config in configs.items()
    }
    arguments: dict[int, dict[Release, tuple[str, ...]]] = {}
    for node_id, by_release in wanted.items():
        for release in (release for release, config in by_release.items() if needs_jvm_arguments(config)):
            with suppress(
                TransientError, UserError, RefusedError, NotObservableError
            ):  # unknown, which a finding reports
                found = ports.runtime.jvm_arguments(ports.cluster.node(node_id), release)
                arguments.setdefault(node_id, {})[release] = found
    return JVM_PROPERTIES_CHECK.ran(
        (*jvm_findings(wanted, arguments, observable=ports.cluster.manages_nodes), *jvm_option_findings(refused)),
        unless="" if releases else NO_RESTART,
        unknown=untried,
    )


def check_authentication(run: ReadRun, configs: Mapping[int, Mapping[str, str]]) -> Checked:
    """Give wrong credentials to the classes of each release on which nodes will start, with the nodes' configuration.

    `configs`: the current configuration by node.
    """
    planned = planned_configs(run.plan.path, configs, run.plan.config_changes)
    releases = run.plan.path[1:]
    if not releases:
        return AUTHENTICATION_CHECK.ran(unless=NO_RESTART)
    if len(configs) == len(run.cluster.nodes) and not any(map(has_sasl, configs.values())):
        return AUTHENTICATION_CHECK.ran(unless="No listener uses SASL.")
    ahead = {release: planned[release] for release in releases}
    return AUTHENTICATION_CHECK.ran(_authentication(run.ports, run.plan.source, ahead, configs))


def _authentication(
    ports: ReadPorts,
    source: Release,
    planned: Mapping[Release, Mapping[int, Mapping[str, str]]],
    running: Mapping[int, Mapping[str, str]],
) -> tuple[Finding, ...]:
    """Return the findings about wrong credentials. `running`: the configuration of the nodes on the source release."""

    def ask(release: Release, of_nodes: Mapping[int, Mapping[str, str]]) -> Mapping[int, tuple[Probe, ...]]:
        with_sasl = {
            node_id: with_inventory_values(ports.cluster.node(node_id), config)
            for node_id, config in of_nodes.items()
            if has_sasl(config)
        }
        return ports.classes.authentication_probes(release, with_sasl) if with_sasl else {}

    probes = {release: ask(release, of_nodes) for release, of_nodes in planned.items()}
    accepted = {node_id for ids in find_accepted(probes).values() for node_id in ids}
    asked = accepted & running.keys() if source in ports.catalogue else set()
    now = ask(source, {node_id: running[node_id] for node_id in asked})
    return tuple(authentication_findings(probes, now))


def check_new_settings(run: ReadRun, configs: Mapping[int, Mapping[str, str]], finalized: Mapping[str, int]) -> Checked:
    """Find the settings that only the target has and that take effect. `configs`: the current configuration by node."""
    if run.plan.target == run.plan.source or not run.plan.release_steps:
        return NEW_SETTINGS_CHECK.ran(unless=NO_RESTART)
    planned = planned_configs(run.plan.path, configs, run.plan.config_changes)[run.plan.path[-1]]
    found = find_new_settings(run.cluster, run.ports.catalogue, run.plan.path, planned, finalized)
    explained = names_to_explain(run.ports.catalogue, run.plan.target, found)
    said = run.ports.classes.setting_documentation(run.plan.target, explained) if explained else {}
    return NEW_SETTINGS_CHECK.ran(
        new_setting_findings(run.ports.catalogue, run.plan.source, run.plan.target, found, said)
    )


def host_findings(run: ReadRun, release_step: ReleaseStep, node: NodeSpec, files: NodeConfigs) -> tuple[Finding, ...]:
    """Return the findings that prevent `node` from starting on the release of the release step, by its current host.
    `files`: as in `check_log_folders_again`."""
    release = release_step.to_release
    alone = replace(run.cluster, nodes=(node,))
    config = _file_of(run.ports, node, files)
    checked = effective_config(node.node_id, config, run.plan.config_changes, release)
    java = java_versions(run.ports, (release,), (node,))
    starts = ObservedStarts()
    accepted: tuple[Finding, ...] = ()
    has_changed = run.history.load_fingerprints().get(node.node_id) != fingerprint(config)
    if has_changed:
        wanted = {release: {node.node_id: checked}}
        accepted = _authentication(run.ports, release_step.from_release, wanted, {node.node_id: config})
    if reads_more(checked) or has_changed:
        down = release < release_step.from_release
        starts = observe_starts(run.ports, release, {node.node_id: checked}, down=down)
    # A listener that only the changed file has presents nothing yet: start_findings judge the stores of the file.
    certificates = check_certificates(run.ports, {node.node_id: config}, lasts_s=0.0, nodes=(node,))
    return (
        *accepted,
        *certificates.findings,
        *config_findings(release, starts.rejected),
        *start_findings(starts),
        *java_findings(alone, run.ports.catalogue, (release,), java),
        *java_maximum_findings(alone, run.ports.catalogue, {release: {node.node_id: checked}}, java),
        *judged(
            run.plan,
            [
                check_hosts(
                    run.ports,
                    (release,),
                    (node,),
                    changes=run.plan.config_changes,
                    restarts=release_step.restarts,
                ),
                check_jvm(run.ports, (release,), {node.node_id: config}, run.plan.config_changes),
            ],
        ),
    )


_DIRECTORIES = "plan/directories.json"


_CHECKED = "plan/dynamic-configs.json"
_DROPPED = "plan/dropped-settings.json"


def check_dynamic_configs(run: Run, observed: PlanObservation) -> tuple[Checked, ...]:
    """Check the configuration for all releases of the plan.

    A dynamic value has precedence over a changed default, so both are judged together.
    """
    configs, dynamic = observed.configs, observed.dynamic
    if isinstance(dynamic, Finding):
        if not run.cluster.manages_nodes:
            dynamic = not_observable(dynamic.subject, "Dynamic configurations")
        _save_dropped(run.ports, {})
        unread = unknown("dynamic configuration", "The dynamic configuration is unknown.")
        return (
            CHANGED_SETTINGS_CHECK.ran(unknown=unread),
            DYNAMIC_CONFIGURATION_CHECK.ran([dynamic]),
            UNCLEAN_CHECK.ran(unknown=unread),
            THROTTLES_CHECK.ran(unknown=unread),
            IP_QUOTAS_CHECK.ran(unknown=unread),
        )
    releases = run.plan.path[1:]
    planned = planned_configs(run.plan.path, configs, run.plan.config_changes)
    of_brokers = {
        node.node_id: {**dynamic.all_brokers, **dynamic.brokers.get(node.node_id, {})} for node in run.cluster.brokers
    }
    unresolved = unresolved_dynamic_findings(dynamic)
    files = {node.node_id: configs[node.node_id] for node in run.cluster.brokers if node.node_id in configs}
    topics = {partition.topic for partition in observed.state.partitions}
    problems = {release: _dynamic_problems(run, release, planned[release], dynamic) for release in releases}
    found = [finding for release in releases for finding in _dynamic_findings(run, release, problems[release], dynamic)]
    run.history.attach(_CHECKED, {str(release): _dynamic_fingerprint(dynamic) for release in releases})
    _save_dropped(run.ports, find_dropped(chain.from_iterable(problems.values())))
    return (
        CHANGED_SETTINGS_CHECK.ran(
            changed_setting_findings(run.cluster, run.ports.catalogue, run.plan.path, planned, of_brokers),
            unless="" if releases else NO_RESTART,
        ),
        DYNAMIC_CONFIGURATION_CHECK.ran(
            (*unresolved, *found, *(retention_findings(dynamic, files, topics) if releases else ())),
            unless="" if releases or unresolved else NO_RESTART,
        ),
        _check_unclean_elections(run, observed.state.partitions, dynamic, planned),
        THROTTLES_CHECK.ran(
            (*throttle_findings(run.cluster, dynamic), *quota_findings(run.cluster, configs, dynamic)),
            unless="" if releases else NO_RESTART,
        ),
        _check_names_in_quotas(run, dynamic),
    )


def _check_names_in_quotas(run: Run, dynamic: DynamicConfigs) -> Checked:
    restarted = {one.node_id for step in run.plan.release_steps for one in step.order}
    names = names_in_quotas(dynamic)
    chosen = [node for node in run.cluster.nodes if node.node_id in restarted and names]

    def ask(node: NodeSpec) -> tuple[str, ...] | RolloutError:
        try:
            return run.ports.runtime.unresolved_names(node, names)
        except RolloutError as error:
            return error

    answers = dict(zip([node.node_id for node in chosen], at_once(ask, chosen), strict=True))
    return IP_QUOTAS_CHECK.ran(
        ip_quota_findings(
            run.cluster, {node_id: found for node_id, found in answers.items() if isinstance(found, tuple)}
        ),
        unless="" if restarted else NO_RESTART,
        unknown=[
            one
            for node_id, error in answers.items()
            if isinstance(error, RolloutError)
            for one in unknown_by(error, f"node {node_id}", f"Whether node {node_id} resolves {few(names)} is unknown")
        ],
    )


def recheck_dynamic_configs(
    run: Run, release: Release, *, files: NodeConfigs, state: ClusterState | None
) -> tuple[Finding, ...]:
    """Return the findings for a release if the dynamic configuration changed since it was checked last, and always the
    defects that apply by what clients use now.

    `files`: those of the nodes whose hosts respond. `state`: of now, with groups; None for a rollback, which must not
    wait for them.
    """
    dynamic = read_dynamic(run.ports)
    if isinstance(dynamic, Finding):
        return (dynamic,)
    known = {node.node_id: files[node.node_id] for node in run.cluster.brokers if node.node_id in files}
    planned = planned_configs(run.plan.path, known, run.plan.config_changes)
    brokers = replace(run.cluster, nodes=tuple(node for node in run.cluster.brokers if node.node_id in known))
    facts = AdvisoryFacts(
        cluster=brokers,
        finalized={},
        state=state,
        configs=planned,
        dynamic=dynamic,
        unknown={} if state is None else unknown_responses(run.cluster, state),
    )
    of_run = changing_defects(run.ports.catalogue, of_groups=state is not None)
    judged = judge_advisories(of_run, run.plan.path, facts)
    defects = advisory_findings(judged, observable=run.cluster.manages_nodes)
    checked = dict(run.history.attachment(_CHECKED) or {})
    if checked.get(str(release)) == _dynamic_fingerprint(dynamic):
        return () if state is None else defects
    found = (
        *_dynamic_findings(run, release, _dynamic_problems(run, release, planned[release], dynamic), dynamic),
        *defects,
        *find_new(retention_findings(dynamic, known, COORDINATOR_TOPICS, stops=True), run.plan.findings),
    )
    is_whole = len(known) == len(run.cluster.brokers)
    if is_whole and not any(finding.severity is Severity.BLOCKER for finding in found):
        run.history.attach(_CHECKED, {**checked, str(release): _dynamic_fingerprint(dynamic)})
    return found


def dropped_settings(ports: ReadPorts) -> Mapping[str, Sequence[str]]:
    """Return what `find_dropped` found when the run was planned; empty for a plan of an earlier version."""
    return dict(ports.run.attachment(_DROPPED) or {})


def _save_dropped(ports: ClusterPorts, found: Mapping[str, Sequence[str]]) -> None:
    """Save what the plan expects to be lost. A run that has acted keeps earlier plans' losses: nodes can lack them."""
    kept = dropped_settings(ports) if has_acted(ports.run.events()) else {}
    union = {name: sorted({*kept.get(name, ()), *found.get(name, ())}) for name in {**kept, **found}}
    ports.run.attach(_DROPPED, union)


def read_dynamic(ports: ReadPorts) -> DynamicConfigs | Finding:
    try:
        return ports.admin.dynamic_configs()
    except (TransientError, RefusedError) as error:
        return unread_config_finding(error.sentence, error.remedy)


def _check_unclean_elections(
    run: ReadRun,
    partitions: Sequence[PartitionState],
    dynamic: DynamicConfigs,
    planned: Mapping[Release, NodeConfigs],
) -> Checked:
    if not run.plan.path[1:]:
        return UNCLEAN_CHECK.ran(unless=NO_RESTART)
    is_offline = run.plan.lowering is Lowering.OFFLINE
    if is_offline or any(partition.leader < 0 for partition in partitions):
        dynamic = _with_controllers(run.ports, dynamic, ENABLE)
    elections = unclean_elections(run.cluster, dynamic, planned[run.plan.path[-1]])
    observed = run.ports.catalogue, run.plan.path, partitions, elections
    found = [*unclean_election_findings(*observed)]
    if is_offline:
        found += outage_findings(run.cluster, partitions, elections)
    return UNCLEAN_CHECK.ran(found, unknown=unknown("controllers", unknown_unclean_elections(*observed)))


def controller_configs(ports: ReadPorts) -> NodeConfigs:
    """Return the files of the controllers, without those that cannot be read."""
    return readable_configs(ports, ports.cluster.controllers)[0]


def observe_elections(ports: ReadPorts) -> UncleanElections:
    """Return for which topics controllers elect unclean leaders, as far as it can be read."""
    try:
        dynamic = ports.admin.dynamic_configs()
    except (TransientError, RefusedError):
        return UNKNOWN_ELECTIONS
    return unclean_elections(ports.cluster, _with_controllers(ports, dynamic, ENABLE), controller_configs(ports))


def refuse_unclean_in_outage(run: ReadRun, state: ClusterState) -> None:
    """Raise RefusedError or TransientError if controllers could elect unclean leaders when all nodes stop and start."""
    elections = observe_elections(run.ports)
    for finding in outage_findings(run.cluster, state.partitions, elections):
        raise RefusedError(f"{finding.sentence} Nothing was stopped.", remedy=finding.remedy)
    if stale := find_stale_replicas(state.partitions, elections, state.registered.unfenced):
        raise TransientError(
            f"{ENABLE} is not false, and replicas of {few(stale)} are out of sync: when the others stop, a controller "
            "elects one of them and acknowledged records are lost. Nothing was stopped.",
            remedy=f"Wait until they are in sync, or set {ENABLE}=false for their topics. Then repeat the step.",
        )


def _with_controllers(ports: ReadPorts, dynamic: DynamicConfigs, name: str) -> DynamicConfigs:
    """Add the own dynamic value of each controller that is no broker.

    A controller before 3.7 does not respond, and Kafka's tools cannot set such a value before (KIP-919).
    """

    def ask(node: NodeSpec) -> dict[str, str]:
        with suppress(NotObservableError, TransientError, RefusedError):
            setting = ports.admin.settings_in_use(node, [name]).get(name)
            if setting is not None and setting.source is ConfigSource.NODE and setting.value is not None:
                return {name: setting.value}
        return {}

    alone = [node for node in ports.cluster.controllers if not node.is_broker]
    own = {node.node_id: values for node, values in zip(alone, at_once(ask, alone), strict=True) if values}
    return replace(dynamic, brokers={**dynamic.brokers, **own})


def _dynamic_problems(
    run: ReadRun,
    release: Release,
    configs: Mapping[int, Mapping[str, str]],
    dynamic: DynamicConfigs,
) -> tuple[ConfigProblem, ...]:
    brokers = {
        node.node_id: with_inventory_values(node, configs[node.node_id])
        for node in run.cluster.brokers
        if node.node_id in configs
    }
    return (
        *run.ports.classes.dynamic_config_problems(release, brokers, dynamic),
        *find_removed_settings(run.ports.catalogue, run.plan.source, release, dynamic),
    )


def _dynamic_findings(
    run: ReadRun, release: Release, problems: Iterable[ConfigProblem], dynamic: DynamicConfigs
) -> tuple[Finding, ...]:
    catalogue, bootstrap = run.ports.catalogue, run.cluster.bootstrap_servers
    return (
        *dynamic_config_findings(catalogue, release, problems, dynamic, bootstrap, source=run.plan.source),
        *tiered_storage_findings(run.plan.path, release, dynamic),
    )


def _dynamic_fingerprint(dynamic: DynamicConfigs) -> str:
    """A hash: a configuration can hold secrets."""
    kinds = (dynamic.topics, dynamic.brokers, dynamic.groups, dynamic.subscriptions, dynamic.quotas)
    parts = [sorted((str(name), sorted(values.items())) for name, values in kind.items()) for kind in kinds]
    return hashlib.sha256(repr((parts, sorted(dynamic.all_brokers.items()))).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedNode:
    """A node as the runtime reports it. A value that was not reported is None, with a finding."""

    node: NodeSpec
    process: ProcessState | None = None
    java: int | None = None
    findings: tuple[Finding, ...] = ()


def check_inventory(ports: ReadPorts, releases: Sequence[Release]) -> tuple[tuple[CheckedNode, ...], Verdict]:
    """Return every node and all findings. `releases`: those that the nodes must have.

    Raises CredentialsError if a listener refuses the credentials.
    """
    nodes = tuple(at_once(lambda node: _check_node(ports, node, releases), ports.cluster.nodes))
    of_nodes = (finding for node in nodes for finding in node.findings)
    findings = (*_rights(ports), *of_nodes, *find_outside(ports).findings)
    return nodes, Verdict(question=f"Is the inventory of {ports.cluster.name} complete?", findings=findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryReadiness:
    """What is ready, in one line, and the commands that print what is missing."""

    ok: bool
    sentence: str
    commands: tuple[str, ...] = ()


def readiness(cluster: ClusterSpec, nodes: Sequence[CheckedNode], verdict: Verdict) -> InventoryReadiness:
    """Return the last line of the check of an inventory."""
    missing = {finding.code for finding in verdict.findings}
    commands = []
    if HOST_RIGHT_MISSING.text in missing or any("sudoers" in finding.remedy for finding in verdict.findings):
        commands.append(f"kafka-rollout inventory rights --cluster {cluster.name} --of hosts")
    if RIGHT_MISSING.text in missing:
        commands.append(f"kafka-rollout inventory rights --cluster {cluster.name} --of kafka")
    if verdict.blockers:
        ready = sum(not any(f.severity is Severity.BLOCKER for f in one.findings) for one in nodes)
        sentence = (
            f"Not ready: {count(len(verdict.blockers), 'blocker')}. {ready} of {count(len(nodes), 'node')} without one."
        )
        return InventoryReadiness(ok=False, sentence=sentence, commands=tuple(commands))
    can = "observe and manage" if cluster.manages_nodes else "observe"
    dry = "" if cluster.manages_nodes else " Each run is a dry run, because the runtime is none."
    sentence = f"Ready: a run can {can} {'the node' if len(nodes) == 1 else f'all {len(nodes)} nodes'}.{dry}"
    return InventoryReadiness(ok=True, sentence=sentence, commands=tuple(commands))


def read_configurations(ports: ReadPorts) -> tuple[dict[int, Mapping[str, str]], dict[int, str]]:
    """Return the configuration of each node, and the reason for those that cannot be read.

    It is the file on the host, or, while sudo does not permit to read it, what the node itself reports.
    """

    def read(node: NodeSpec) -> Mapping[str, str] | str:
        try:
            return ports.runtime.config(node)
        except RolloutError as error:
            try:
                return ports.admin.node_config(node)
            except RolloutError as other:
                return f"{error.sentence} {other.sentence}"

    found = dict(zip(ports.cluster.nodes, at_once(read, ports.cluster.nodes), strict=True))
    configs = {node.node_id: one for node, one in found.items() if not isinstance(one, str)}
    return configs, {node.node_id: one for node, one in found.items() if isinstance(one, str)}


def _rights(ports: ReadPorts) -> tuple[Finding, ...]:
    try:
        return find_rights_of_runs(ports.cluster, ports.admin.missing_rights())
    except CredentialsError:
        raise  # invalid input, and no state of a node
    except RolloutError as error:
        return (NODE_DOWN.found("brokers", error.sentence, error.remedy),)


def _check_node(ports: ReadPorts, node: NodeSpec, releases: Sequence[Release]) -> CheckedNode:
    """The first error of the runtime ends the check of a node, because the others would repeat it."""
    process: ProcessState | None = None
    java: int | None = None
    findings: list[Finding] = []
    try:
        process = ports.runtime.process(node)
        of_host = check_hosts(ports, releases, (node,))
        findings += [*of_host.findings, *(not_observable(one.subject, "Host", one.sentence) for one in of_host.unknown)]
        config = ports.runtime.config(node)
        configs = {release: {node.node_id: config} for release in releases}
        try:
            java = ports.runtime.java_version(node, releases)
        except NotObservableError as error:
            if not ports.cluster.manages_nodes:
                raise
            findings.append(JAVA_UNKNOWN.found(f"node {node.node_id}", error.sentence, error.remedy))
        else:
            alone = replace(ports.cluster, nodes=(node,))
            findings += java_findings(alone, ports.catalogue, releases, {node.node_id: java})
            findings += java_maximum_findings(alone, ports.catalogue, configs, {node.node_id: java})
    except NotObservableError as error:
        findings.append(
            not_observable(f"node {node.node_id}", f"Host, process and files of node {node.name}", error.remedy)
        )
    except RolloutError as error:
        code = HOST_UNREACHABLE if isinstance(error, TransientError) else HOST_REFUSED
        findings.append(code.found(f"node {node.node_id}", error.sentence, error.remedy))
    try:
        ports.admin.features(node)
    except CredentialsError:
        raise
    except RolloutError as error:
        findings.append(NODE_DOWN.found(f"node {node.node_id}", error.sentence, error.remedy))
    return CheckedNode(node=node, process=process, java=java, findings=tuple(findings))
