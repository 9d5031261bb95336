"""Findings about what a node reads at its start: plugin classes, keystores and truststores, and the JAAS file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kafka_rollout.base.findings import (
    BLOCKER,
    INFO,
    WARNING,
    Check,
    CheckOf,
    Examined,
    Finding,
    FindingCode,
    Need,
    Severity,
)
from kafka_rollout.base.wording import few, nodes
from kafka_rollout.model.starts import (
    AUTHORIZER,
    KEEP_AUTHORIZER,
    ClassPlaces,
    FileRemark,
    NamedFile,
    PluginClass,
    is_key_file,
)
from kafka_rollout.planning.findings.not_observable import not_observable
from kafka_rollout.releases.facts import Release

_T = TypeVar("_T")

PLUGIN_CLASS = FindingCode(
    "PLUGIN-CLASS",
    (BLOCKER, WARNING, INFO),
    "A setting names a class that is not Kafka's. A blocker if the node's jars do not have it on the release, a "
    "warning if they cannot be read, an info if they have it.",
)
START_FILE_MISSING = FindingCode(
    "START-FILE-MISSING",
    BLOCKER,
    "A keystore, a truststore, a JAAS file or the file of a config provider that a node reads at its start is missing.",
)
START_FILE_UNKNOWN = FindingCode(
    "START-FILE-UNKNOWN",
    WARNING,
    "A keystore, a truststore or a JAAS file that a node reads at its start could not be checked.",
)
CERTIFICATE_NOT_USED = FindingCode(
    "CERTIFICATE-NOT-USED",
    (INFO, WARNING),
    "A keystore has a certificate that has ended, and that no client needs: of an entry that the listener does not "
    "present, or of an authority in the chain. A warning if it is unknown which entry the listener presents.",
    "Remove it from the keystore when you renew the keystore.",
)
START_FILES_CHECK = Check(
    "start-files",
    "Keystores, JAAS files and plugin classes of each node",
    "upgrade.md#configuration-of-a-node",
    (PLUGIN_CLASS, START_FILE_MISSING, START_FILE_UNKNOWN, CERTIFICATE_NOT_USED),
    of=(CheckOf.UPGRADE, CheckOf.DOWNGRADE, CheckOf.RESTART),
    needs=(Need.CONFIGS,),
    examines=Examined.CONFIGS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPlugin:
    """A plugin class of a node on a release."""

    release: Release
    plugin: PluginClass
    places: ClassPlaces | None
    """None if the runtime sees no files of nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedFiles:
    """Files that a node reads at its start."""

    names: Collection[str] = ()
    files: Sequence[NamedFile] | None = ()
    """None if the runtime sees no files of nodes, and `names` has their settings."""
    started_at: float | None = None
    """Of the running process, epoch seconds by the clock of its host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedStarts:
    """The starts of all nodes on the releases ahead, by node id."""

    rejected: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Errors of Kafka's own classes."""
    remarks: Mapping[int, tuple[FileRemark, ...]] = field(default_factory=dict)
    """About files that they read."""
    plugins: Mapping[int, tuple[ObservedPlugin, ...]] = field(default_factory=dict)
    files: Mapping[int, ObservedFiles] = field(default_factory=dict)

    def of(self, node_ids: Collection[int]) -> ObservedStarts:
        """Return the starts of some nodes."""

        def chosen(values: Mapping[int, _T]) -> Mapping[int, _T]:
            return {node_id: value for node_id, value in values.items() if node_id in node_ids}

        return ObservedStarts(
            rejected=chosen(self.rejected),
            remarks=chosen(self.remarks),
            plugins=chosen(self.plugins),
            files=chosen(self.files),
        )

    def then(self, later: ObservedStarts, release: Release, *, is_target: bool) -> ObservedStarts:
        """Add the starts on the next release of a path. Only the errors of the target have no name of a release."""
        rejected = {
            node_id: (
                *self.rejected.get(node_id, ()),
                *(problem if is_target else f"{release}: {problem}" for problem in found),
            )
            for node_id, found in {**dict.fromkeys(self.rejected, ()), **later.rejected}.items()
        }
        plugins = {
            node_id: (*self.plugins.get(node_id, ()), *later.plugins.get(node_id, ()))
            for node_id in {**self.plugins, **later.plugins}
        }
        remarks = {  # each once: most are about the file, whatever the release
            node_id: tuple(dict.fromkeys((*self.remarks.get(node_id, ()), *later.remarks.get(node_id, ()))))
            for node_id in {**self.remarks, **later.remarks}
        }
        return ObservedStarts(
            rejected=rejected,
            remarks=remarks,
            plugins=plugins,
            files={**self.files, **later.files},
        )


def start_findings(starts: ObservedStarts) -> tuple[Finding, ...]:
    """Return the findings, apart from those of a configuration that is rejected."""
    return (*_of_plugins(starts.plugins), *_of_files(starts.files), *_of_remarks(starts.remarks))


def _of_remarks(remarks: Mapping[int, Sequence[FileRemark]]) -> Iterator[Finding]:
    for node_id, found in sorted(remarks.items()):
        for number, one in enumerate(found):
            yield CERTIFICATE_NOT_USED.found(
                f"node {node_id}, keystore{f' ({number + 1})' if number else ''}",
                f"Node {node_id}, {one.sentence}.",
                severity=WARNING if one.is_unknown else INFO,
            )


def _of_plugins(plugins: Mapping[int, Sequence[ObservedPlugin]]) -> Iterator[Finding]:
    alike: defaultdict[tuple[str, str, Severity, str, str], list[int]] = defaultdict(list)
    for node_id, found in sorted(plugins.items()):
        for one in found:
            key = (f"{one.plugin.setting}, release {one.release}", one.plugin.name, *_evaluate(one))
            alike[key].append(node_id)
    for (subject, name, severity, fact, remedy), node_ids in alike.items():
        yield PLUGIN_CLASS.found(
            f"{nodes(node_ids)}, {subject}",
            f"{subject.partition(',')[0]} of {nodes(node_ids)} names {name}, which is not a class of Kafka. {fact} The "
            "rest of the configuration was validated without it.",
            remedy,
            severity=severity,
        )


def _evaluate(one: ObservedPlugin) -> tuple[Severity, str, str]:
    """Return the severity, the measured fact and the remedy."""
    places, name, release = one.places, one.plugin.name, one.release
    keep = f" {KEEP_AUTHORIZER}" if one.plugin.setting == AUTHORIZER else ""
    tried = " To validate its settings too, put the jar into the folder KAFKA_ROLLOUT_PLUGINS of this machine."
    if places is not None and (jars := places.jars.get(name)):
        return INFO, f"It is in {few(jars)}.", f"Check that this version of the plugin supports {release}.{keep}"
    if places is None or places.unknown:
        why = f": {places.unknown}" if places is not None else ""
        return (
            WARNING,
            f"It is unknown whether a node on {release} has it{why}.",
            f"Check that a jar in the class path of the node on {release} has the class, in a version that supports "
            f"this release.{tried}{keep}",
        )
    if old := places.left_behind.get(name):
        return (
            BLOCKER,
            f"It is in {few(old)}, and no jar in {places.folder} has it.",
            f"Copy the plugin, in a version that supports {release}, to {places.folder}. Then plan again.{keep}",
        )
    return (
        BLOCKER,
        f"No jar in {places.folder} and none that the process has loaded has it.",
        f"Put the jars of the plugin, in a version that supports {release}, into {places.folder}. Then plan "
        f"again.{keep}",
    )


def _of_files(files: Mapping[int, ObservedFiles]) -> Iterator[Finding]:
    for node_id, observed in sorted(files.items()):
        if observed.files is None:
            if observed.names:
                yield not_observable(
                    f"files of node {node_id}", f"The files in {few(sorted(observed.names))} of node {node_id}"
                )
            continue
        for one in observed.files:
            if one.readable_at is not None and is_key_file(one.setting):
                continue  # Kafka's own classes have read it, or said that it is missing
            subject = f"node {node_id}, {one.setting}"
            if one.is_absent:
                yield START_FILE_MISSING.found(
                    subject,
                    f"{one.path}, which {one.setting} of node {node_id} names, does not exist on its host. The node "
                    "would not start.",
                    f"Restore the file, or correct {one.setting}.",
                )
                continue
            if one.is_hidden:
                yield START_FILE_UNKNOWN.found(
                    f"{subject}, login modules",
                    f"Node {node_id} reads {one.path} ({one.setting}) at its start, and the SSH user cannot. Its login "
                    "modules and key tabs were not checked: a start ends if a release does not have, or forbids, one "
                    "of these classes, or if a key tab is missing.",
                    f"Let the SSH user read it (`setfacl -m u:USER:r {one.path}`): only names of modules and paths of "
                    "key tabs leave the host. Or check yourself that the class path of each release has the modules of "
                    "its section KafkaServer. Then approve the plan.",
                )
            if not is_key_file(one.setting):
                continue  # a change of what a config provider reads is a finding about files since the start
            elif one.changed_at is None or observed.started_at is None or one.changed_at >= observed.started_at:
                yield START_FILE_UNKNOWN.found(subject, *_why_unknown(node_id, one, observed))


def _why_unknown(node_id: int, one: NamedFile, observed: ObservedFiles) -> tuple[str, str]:
    read = "This tool does not read keys on hosts, so the file was not checked."
    names = f"Node {node_id} reads {one.path} ({one.setting}) at its start."
    if one.changed_at is None:
        return (
            f"{names} {read} The SSH user does not see its date either: {one.problem}.",
            "Give the SSH user the right to enter the folder, not to read the file. Then a file that has not changed "
            "since the process started counts as checked.",
        )
    if observed.started_at is None:
        return f"{names} {read} The node does not run, so no process has proved it.", "Start the node, then plan again."
    return (
        f"{names} {read} It has changed since the process started.",
        "Check that it has a key with its certificate, that the certificate is valid and trusted by the truststore of "
        "every node, and that the password is right. Then approve the plan.",
    )
