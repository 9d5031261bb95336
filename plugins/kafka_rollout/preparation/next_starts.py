"""What each node reads at its next start, validated by the classes of the releases that will start."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from kafka_rollout.base.errors import NotObservableError, RefusedError, TransientError, UserError
from kafka_rollout.model.configs import provider_files, with_inventory_values
from kafka_rollout.model.listeners import find_listeners
from kafka_rollout.model.plan import overridden_lines
from kafka_rollout.model.starts import (
    ClassPlaces,
    NamedFile,
    NodeStart,
    PluginClass,
    login_file,
    modules_of_files,
    named_files,
)
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.observation.cluster_ports import ClusterPorts, ReadPorts, at_once
from kafka_rollout.planning.findings.starts import ObservedFiles, ObservedPlugin, ObservedStarts
from kafka_rollout.releases.facts import Release

_UNKNOWN = (TransientError, UserError, RefusedError, NotObservableError)


def observe_path(
    ports: ClusterPorts, path: Sequence[Release], configs: Mapping[int, Mapping[str, str]], *, down: bool = False
) -> ObservedStarts:
    """Observe the starts on each release of `path` (target last). The validated configurations are recorded.

    `down`: for a downgrade, without bootstrap.checkpoint.
    """
    found = ObservedStarts()
    for release, overrides in overridden_lines(ports.cluster, path).items():
        of_nodes = {node_id: _with_lines(config, overrides) for node_id, config in configs.items()}
        found = found.then(observe_starts(ports, release, of_nodes, down=down), release, is_target=release == path[-1])
    ports.run.save_fingerprints({node_id: fingerprint(config) for node_id, config in configs.items()})
    return found


def _with_lines(config: Mapping[str, str], overrides: Mapping[str, str | None]) -> dict[str, str]:
    """Return a configuration with the lines of a release. None: a line that it removes."""
    return {name: value for name, value in {**config, **overrides}.items() if value is not None}


def observe_starts(
    ports: ReadPorts, release: Release, configs: Mapping[int, Mapping[str, str]], *, down: bool
) -> ObservedStarts:
    """Observe the starts on one release. `configs`: by node id, with the changes of the run.

    `down` leaves out bootstrap.checkpoint: the scan of the metadata logs finds a level that the release cannot read,
    and the run lowers it while the node is stopped (BOOTSTRAP-CHECKPOINT-TOO-NEW).
    """

    def observe(item: tuple[int, Mapping[str, str]]) -> tuple[NodeStart, ObservedFiles]:
        return _observe(ports, ports.cluster.node(item[0]), release, item[1], down=down)

    seen = dict(zip(configs, at_once(observe, configs.items()), strict=True))
    problems = ports.classes.start_problems(release, {node_id: start for node_id, (start, _) in seen.items()})
    plugins: dict[int, tuple[ObservedPlugin, ...]] = {}
    for node_id, found in problems.items():
        if found.plugins:
            places = _find_classes(ports, ports.cluster.node(node_id), release, found.plugins)
            plugins[node_id] = tuple(
                ObservedPlugin(release=release, plugin=one, places=places) for one in found.plugins
            )
    return ObservedStarts(
        rejected={node_id: found.rejected for node_id, found in problems.items()},
        remarks={node_id: found.remarks for node_id, found in problems.items() if found.remarks},
        plugins=plugins,
        files={node_id: files for node_id, (_, files) in seen.items() if files.names},
    )


def _observe(
    ports: ReadPorts, node: NodeSpec, release: Release, config: Mapping[str, str], *, down: bool
) -> tuple[NodeStart, ObservedFiles]:
    formats = ports.runtime.directory_formats(node, config)
    if down and formats is not None:
        formats = {path: replace(found, bootstrap=None) for path, found in formats.items()}
    arguments: tuple[str, ...] | None = None
    if any(listener.reads_login_file for listener in find_listeners(config).all):
        with suppress(*_UNKNOWN):
            arguments = ports.runtime.jvm_arguments(node, release)
            # Without a process, it is unknown what its start script adds, which can name the JAAS file.
            if not login_file(arguments) and ports.runtime.process(node).pid is None:
                arguments = None
    names = dict(named_files(config, arguments))
    if node.service is None:  # what is missing on a host is found with what its unit makes (START-PATH-MISSING)
        names = {**dict(provider_files(config)), **names}
    files = _named_files(ports, node, names)
    start = NodeStart(
        properties=with_inventory_values(node, config),
        formats=formats,
        files=None if files is None else {one.path: one.readable_at for one in files if one.readable_at is not None},
        jvm_arguments=arguments,
        login_modules=tuple(modules_of_files(config, files or ())),
    )
    return start, _files(ports, node, names, files)


def _named_files(ports: ReadPorts, node: NodeSpec, names: Mapping[str, str]) -> Sequence[NamedFile] | None:
    try:
        return ports.runtime.named_files(node, names)
    except _UNKNOWN as error:
        return tuple(NamedFile(setting=key, path=path, problem=error.sentence) for key, path in names.items())


def _find_classes(
    ports: ReadPorts, node: NodeSpec, release: Release, classes: Sequence[PluginClass]
) -> ClassPlaces | None:
    try:
        return ports.runtime.find_classes(node, release, classes)
    except _UNKNOWN as error:
        return ClassPlaces(folder="", unknown=error.sentence.rstrip("."))


def _files(
    ports: ReadPorts, node: NodeSpec, names: Mapping[str, str], files: Sequence[NamedFile] | None
) -> ObservedFiles:
    started_at = None
    if any(one.readable_at is None for one in files or ()):
        with suppress(*_UNKNOWN):
            started_at = ports.runtime.process(node).started_at
    return ObservedFiles(names=tuple(names), files=files, started_at=started_at)


def fingerprint(config: Mapping[str, str]) -> str:
    """A hash: a configuration can hold passwords."""
    return hashlib.sha256(json.dumps(dict(config), sort_keys=True).encode()).hexdigest()
