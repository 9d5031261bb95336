"""Findings about the hosts of nodes: what would fail after a node is stopped, and who can change what a run changes.

Root follows a link that it meets in a path. So root writes only below folders that root alone can change; otherwise the
user who can change one of them could redirect the write and become root.
"""

from __future__ import annotations

import math
import posixpath
import re
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence

from kafka_rollout.base.findings import BLOCKER, INFO, WARNING, Check, CheckOf, Examined, Finding, FindingCode
from kafka_rollout.base.time_limits import STOP_S
from kafka_rollout.base.wording import count, few, nodes, size
from kafka_rollout.model.host_state import (
    ADD_PACKAGE,
    CLOSED,
    CORRECT_TRIAL,
    SUDO_RS,
    Elsewhere,
    HostPath,
    HostState,
    PlaceState,
    StartFileKind,
    can_change,
    how_to_install,
)
from kafka_rollout.model.package_managers import replaces_held
from kafka_rollout.model.plan import ConfigChange
from kafka_rollout.model.starts import MAIN_CLASS
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, ServiceSpec
from kafka_rollout.planning.findings.jvm_options import JVM_OPTION_CODES, jvm_option_losses
from kafka_rollout.planning.findings.logging_files import LOG_CONFIG_REPLACED, logging_file_findings
from kafka_rollout.planning.findings.package_scripts import PACKAGE_CHANGES_ACCESS, package_script_findings
from kafka_rollout.planning.findings.required_units import REQUIRED_UNIT_DOWN, required_unit_findings
from kafka_rollout.planning.findings.security_labels import SECURITY_LABEL_DIFFERS, security_label_findings
from kafka_rollout.planning.findings.shadowing_jars import JAR_SHADOWS_RELEASE, shadowing_jars
from kafka_rollout.planning.findings.start_commands import START_COMMAND, start_command_findings
from kafka_rollout.planning.findings.start_paths import START_PATH_CODES, start_path_findings
from kafka_rollout.planning.findings.start_scripts import START_SCRIPT_EDITED, edited_script_findings
from kafka_rollout.planning.findings.start_writes import CODEC_NOT_LOADABLE, start_write_findings
from kafka_rollout.planning.findings.stops import STOP_CODES, stop_findings
from kafka_rollout.planning.findings.unit_mounts import UNIT_SEES_OTHER_FILE, unit_mount_findings
from kafka_rollout.planning.findings.unit_starts import UNIT_START_CODES, unit_start_findings
from kafka_rollout.releases.facts import Catalogue, Release

HOST_PATH_UNSAFE = FindingCode(
    "HOST-PATH-UNSAFE",
    BLOCKER,
    "A user who is not root can change a folder in which a run writes with the rights of root or unpacks a release.",
)
UNIT_RUNS_AS_ROOT = FindingCode(
    "UNIT-RUNS-AS-ROOT",
    WARNING,
    "The process of the unit runs as root, so the SSH user can become root by the configuration of Kafka.",
)
HOST_RIGHT_EXCESS = FindingCode(
    "HOST-RIGHT-EXCESS",
    WARNING,
    "sudo permits the SSH user more as root than the printed file.",
    "A run does not need them. Save the file that `kafka-rollout inventory rights --cluster NAME --host HOST` prints "
    "as the last of /etc/sudoers.d (zz-kafka-rollout). Remove what is listed then, or limit it to other users, such as "
    "`Defaults:ALL,!rollout` (docs/hosts.md).",
)
CONFIGURATION_OWNER = FindingCode(
    "CONFIGURATION-OWNER",
    BLOCKER,
    "The configuration file or its folder belongs to another user than the inventory says.",
)
CONFIGURATION_IS_LINK = FindingCode(
    "CONFIGURATION-IS-LINK",
    BLOCKER,
    "The configuration file is a symbolic link: its copies would be links to the file that the run changes.",
)
CONFIGURATION_FIXED = FindingCode(
    "CONFIGURATION-FIXED",
    BLOCKER,
    "A run cannot rename another file to the configuration file: it or its folder is immutable (chattr), or it is a "
    "mount point.",
)
RELEASES_NOT_WRITABLE = FindingCode(
    "RELEASES-NOT-WRITABLE", BLOCKER, "The SSH user cannot unpack an archive into the folder of the releases."
)
PATH_CODES = (
    HOST_PATH_UNSAFE,
    UNIT_RUNS_AS_ROOT,
    HOST_RIGHT_EXCESS,
    CONFIGURATION_OWNER,
    CONFIGURATION_IS_LINK,
    CONFIGURATION_FIXED,
    RELEASES_NOT_WRITABLE,
)


def path_findings(node: NodeSpec, host: HostState) -> Iterable[Finding]:
    """Yield the findings of one host."""
    service, subject = node.service, f"node {node.node_id}"
    if service is None:
        return
    yield from _of_configuration(service, subject, host)
    if service.package is None and (unsafe := _unsafe(host, _above(service.symlink))):
        yield HOST_PATH_UNSAFE.found(
            subject,
            f"Root switches the link {service.symlink} on host {host.name}, and {_shown(unsafe)}. A user who can "
            "change a folder above the link could become root.",
            f"{_give(host, unsafe)} Or move the link to a folder of root and correct the inventory.",
        )
    for path in service.package.root_paths if service.package else ():
        own = [seen for seen in host.paths if seen.path == path and _is_of_others(seen)]
        own += [one for one in host.leads.get(path, ()) if not stat.S_ISLNK(one.mode) and _is_of_others(one)]
        if unsafe := [*_unsafe(host, _above(path)), *own]:
            shown = f"{'a link, ' if path in host.leads else ''}and {_shown(unsafe)}"
            yield HOST_PATH_UNSAFE.found(
                f"{subject}, {path}",
                f"Root uses {path} on host {host.name}, {shown}. A user who can change it could become root.",
                _give(host, unsafe),
            )
    if service.archive is not None:
        yield from _of_releases(service, subject, host)
    if host.runs_as_root:
        yield UNIT_RUNS_AS_ROOT.found(
            subject,
            f"The process of {host.unit} on host {host.name} runs as root. Kafka runs code that its configuration "
            f"names, so the SSH user {host.login}, who can change the configuration, can become root.",
            f"Set User={service.user} in the unit, and give this user the data directories.",
        )
    if host.excess:
        yield HOST_RIGHT_EXCESS.found(
            subject,
            f"sudo on host {host.name} permits the SSH user {host.login} more as root than the file that this tool "
            f"prints: {'; '.join(host.excess)}.",
        )


def _of_configuration(service: ServiceSpec, subject: str, host: HostState) -> Iterable[Finding]:
    file, folder = service.configuration_file, service.configuration_file.rpartition("/")[0] or "/"
    if service.managed_elsewhere:
        return
    if any(path.path == file and stat.S_ISLNK(path.mode) for path in host.paths):
        yield CONFIGURATION_IS_LINK.found(
            subject,
            f"{file} on host {host.name} is a symbolic link. A copy of it would be a link to the file that the run "
            "changes, and a loss of power could leave half of that file.",
            f"Write the path that `readlink -f {file}` prints into the inventory (configuration_file). If it is in the "
            "folder of a release, copy the file to a folder outside first, and name the copy in the unit and in the "
            "inventory.",
        )
    if host.fixed:
        yield CONFIGURATION_FIXED.found(
            subject,
            f"A run writes {file} on host {host.name} while node {subject.removeprefix('node ')} is stopped, and it "
            f"cannot rename the new file to it: {' and '.join(host.fixed)}.",
            f"Run `chattr -i -a {file} {folder}` as root for these attributes. If the file is a mount point, unmount "
            "it (`umount`), copy the file to its place, and remove the mount from /etc/fstab. Then plan again.",
        )
    if service.configuration_writer == "user":
        foreign = [path for path in host.paths if path.path in (file, folder) and path.owner != service.user]
        if foreign:
            yield CONFIGURATION_OWNER.found(
                subject,
                f"{service.user} writes {file} on host {host.name}, and {_shown(foreign)}.",
                f"Give them to {service.user}, or remove configuration_writer from the inventory if root owns them.",
            )
        return
    unsafe = _unsafe(host, _above(file))
    if unsafe:
        yield HOST_PATH_UNSAFE.found(
            subject,
            f"Root writes {file} on host {host.name}, and {_shown(unsafe)}. A user who can change a folder "
            "above the file could become root.",
            f"{_give(host, unsafe)} If the folder belongs to {service.user}, set "
            "configuration_writer: user in the inventory and print the sudoers file again.",
        )


def _of_releases(service: ServiceSpec, subject: str, host: HostState) -> Iterable[Finding]:
    """The SSH user unpacks an archive: the user of the broker must not be able to redirect that."""
    folder = service.release_parent
    if host.brought and not host.can_unpack:
        yield RELEASES_NOT_WRITABLE.found(
            subject,
            f"The SSH user {host.login} cannot write into {folder} on host {host.name}. A run unpacks an archive as "
            "this user and without sudo: root would unpack setuid bits, links and devices too.",
            f"Create a folder for releases that belongs to {host.login}, link the installed releases into it, and set "
            "`installation` to a path in this folder (docs/hosts.md).",
        )
    above = (*_above(folder), folder)
    if unsafe := [path for path in host.paths if path.path in above and can_change(path, service.user)]:
        yield HOST_PATH_UNSAFE.found(
            subject,
            f"The SSH user {host.login} unpacks releases to {folder} on host {host.name}, and {_shown(unsafe)}. "
            f"{service.user} could redirect the files.",
            f"Take the write rights of {service.user} and of other users away: {few([path.path for path in unsafe])}.",
        )


def _unsafe(host: HostState, above: Sequence[str]) -> list[HostPath]:
    return [
        path
        for path in host.paths
        if path.path in above and (path.user_id != 0 or not stat.S_ISDIR(path.mode) or can_change(path, ""))
    ]


def _is_of_others(path: HostPath) -> bool:
    return path.user_id != 0 or can_change(path, "")


def _above(path: str) -> tuple[str, ...]:
    """Every folder above a path."""
    parts = path.strip("/").split("/")[:-1]
    return ("/", *("/" + "/".join(parts[: number + 1]) for number in range(len(parts))))


def _shown(paths: Sequence[HostPath]) -> str:
    return ", ".join(
        f"{path.path} is a symbolic link"
        if stat.S_ISLNK(path.mode)
        else f"{path.path} belongs to {path.owner} with mode {stat.S_IMODE(path.mode):03o}"
        for path in paths
    )


def _give(host: HostState, paths: Sequence[HostPath]) -> str:
    """Return the remedy. A folder that others cannot enter is left to its owner, and so is one in which the process
    writes: below it can be what a process of the owner uses, which root as the owner would close to it."""
    used = _used_folders(host)
    links = [one.path for one in paths if stat.S_ISLNK(one.mode)]
    others = [one for one in paths if one.path not in links]
    shared = [one.path for one in others if one.mode & stat.S_ISVTX and one.mode & stat.S_IWOTH]
    written = [one.path for one in others if one.user_id != 0 and one.path in used and one.path not in shared]
    closed = [
        one.path
        for one in others
        if one.user_id != 0 and stat.S_ISDIR(one.mode) and not one.mode & stat.S_IXOTH and one.path not in written
    ]
    left = [one for one in others if one.path not in {*shared, *written, *closed}]
    given = " ".join(one.path for one in left if one.user_id != 0)
    narrowed = " ".join(one.path for one in left)
    parts = [f"Run `chown root {given}` and `chmod go-w {narrowed}`."] if given else []
    parts += [f"Run `chmod go-w {narrowed}`."] if narrowed and not given else []
    parts += [f"Do not change {path}, into which other programs of the host write. {_ELSEWHERE}" for path in shared]
    parts += [
        f"Do not give {path} to root: Kafka writes into it, and could not any more. {_ELSEWHERE}" for path in written
    ]
    parts += [
        f"Do not give {path} to root: only its owner can enter it, and what runs below it would end. {_ELSEWHERE}"
        for path in closed
    ]
    parts += [
        f"Write the path without the link {link} into the inventory. If it is in the folder of a release, copy the "
        "file to a folder outside first, and name the copy in the unit and in the inventory."
        for link in links
    ]
    return " ".join(parts)


_ELSEWHERE = "Install Kafka in another folder, such as /opt, and write the paths there into the unit and the inventory."


def _used_folders(host: HostState) -> frozenset[str]:
    """Return the log directories, the folders that a start writes, and those with files that the process has open."""
    opened = {posixpath.dirname(path) for path in host.facts.opened if not path.endswith(".jar")}
    return frozenset(opened | {path for one in host.writes if not one.codecs for path in (one.path, one.place)})


_FREE_BYTES = 1 << 20  # for copies of the configuration
_PACKAGE_BYTES = 50_000_000  # for its state; a download, which comes before the stop, finds what it needs itself
_RELEASE_BYTES = 300_000_000  # an archive of 4.x has 130 MB, and its folder about as much
CLOCK_SKEW_S = 5.0
_SHOWN = 8
# Property of the JVM that names the file of the logging library of a release.
_LOGGING = {"reload4j": "log4j.configuration", "log4j2": "log4j2.configurationFile"}
_NAMES_OF_LOG4J_2 = ("log4j2.configurationFile", "log4j.configurationFile")
"""Log4j 2 reads both names."""
_OLD_SCALA = "kafka_2.12-"
_SCALA = " Kafka 4 exists for Scala 2.13 only, and its folder can have this name (KIP-751)."
_OF_SCRIPT = "../config/"
_JAR = re.compile(r"(.+?)(?:-(\d[^/]*))?\.jar")
_JAVA = re.compile(r"/(jvm|jre|jdk)[^/]*/")  # jars of Java itself
# Kafka's own artifacts have the version of the release. An archive also contains these ones, in one release or another.
_KAFKA = re.compile(r"kafka[-_].*|connect-.*|trogdor")
_LIBRARIES = re.compile(
    r"activation|aopalliance-repackaged|argparse4j|audience-annotations|caffeine|checker-qual|classgraph"
    r"|commons-(beanutils|cli|collections|digester|io|lang3|logging|validator)|error_prone_annotations|HdrHistogram|hash4j"
    r"|hk2-(api|locator|utils)|jackson-(annotations|core|databind|dataformat-(csv|yaml)|datatype-jdk8|(jaxrs|jakarta-rs)-base"
    r"|(jaxrs|jakarta-rs)-json-provider|module-(afterburner|blackbird|jaxb-annotations|jakarta-xmlbind-annotations|scala.*))"
    r"|jakarta\.(activation-api|annotation-api|inject|inject-api|servlet-api|validation-api|ws\.rs-api|xml\.bind-api)"
    r"|javassist|javax\.(activation|activation-api|annotation-api|servlet-api|ws\.rs-api)|jaxb-api"
    r"|jersey-(client|common|container-servlet|container-servlet-core|hk2|server)"
    r"|jetty-(alpn-.*|client|continuation|ee10-.*|http|io|security|server|servlets?|session|util|util-ajax)|jline|jopt-simple"
    r"|jose4j|jspecify|jsr305|log4j|log4j-(1\.2-api|api|core|slf4j2?-impl)|lz4-java|maven-artifact|metrics-core"
    r"|netty-(buffer|codec|common|handler|resolver|transport|transport-(classes-epoll|native-(epoll|unix-common)).*)"
    r"|opentelemetry-proto|osgi-resource-locator|paranamer|pcollections|plexus-utils|protobuf-java|re2j|reflections"
    r"|reload4j|rocksdbjni|scala-(collection-compat|java8-compat|library|logging|reflect).*"
    r"|slf4j-(api|log4j12|reload4j)|snakeyaml|snappy-java|swagger-annotations|zookeeper(-jute)?|zstd-jni"
)
_FAMILIES = re.compile(r"(commons|hk2|jackson|jakarta|javax|jersey|jetty|log4j|netty|scala|slf4j)[-.].*")
"""Libraries of an archive, or of a plugin: they belong to Kafka if the folder of another release has them."""
_MOST_JARS = 40


RELEASE_NOT_ON_HOST = FindingCode(
    "RELEASE-NOT-ON-HOST",
    BLOCKER,
    "A release of the path, or the one that a rollback needs, is not installed on a host.",
)
PACKAGE_UNAVAILABLE = FindingCode(
    "PACKAGE-UNAVAILABLE",
    BLOCKER,
    "A host cannot install the package of a release of the path, or of the release that runs now.",
    ADD_PACKAGE,
)
PACKAGE_UNKNOWN = FindingCode(
    "PACKAGE-UNKNOWN",
    BLOCKER,
    "A host did not show whether it can install the package of a release of the path, or of the release that runs now.",
    CORRECT_TRIAL,
)
PACKAGE_NOT_HELD = FindingCode(
    "PACKAGE-NOT-HELD",
    WARNING,
    "An upgrade of the packages of a host, for example by unattended-upgrades, can replace Kafka and restart its node.",
    "Run `apt-mark hold` for the package on the host. A run replaces it, and holds it again.",
)
PACKAGE_UNFINISHED = FindingCode(
    "PACKAGE-UNFINISHED",
    BLOCKER,
    "dpkg has left a package of a host unfinished, so each installation ends with an error.",
    "If a package manager works on the host now, wait until it has ended. Run `dpkg --configure -a` there as root, and "
    "correct what the scripts of the package report, for example a full /boot. If it must be installed again, run "
    "`apt-get install --reinstall`, or remove it. Then run `kafka-rollout inventory check`.",
)
HOST_DISK_FULL = FindingCode(
    "HOST-DISK-FULL",
    BLOCKER,
    "A host has no space for a release, for the package manager, for the copy of the configuration or for records.",
    "Free space on this file system.",
)
HOST_READ_ONLY = FindingCode(
    "HOST-READ-ONLY",
    (BLOCKER, WARNING),
    "A run cannot switch the release or write the configuration, because the file system is mounted read-only.",
    "Find the cause in `dmesg` (ext4 does it after an error of the disk), then mount it read-write.",
)
ARCHIVE_NOT_PINNED = FindingCode(
    "ARCHIVE-NOT-PINNED",
    WARNING,
    "The archive of a release is compared only with the checksum next to it.",
    "Verify the signature of the archive, and set archive_sha512 in the inventory.",
)
SYMLINK_IS_NO_LINK = FindingCode(
    "SYMLINK-IS-NO-LINK",
    BLOCKER,
    "A file or a folder has the name of the symbolic link that chooses the release.",
    "Replace it by a link to the folder of the installed release, or correct the inventory.",
)
LINK_ELSEWHERE = FindingCode(
    "LINK-ELSEWHERE",
    (BLOCKER, WARNING, INFO),
    "The link of the release leads to another folder than `installation` has for the release that runs; a blocker if a "
    "rollback finds no folder, an info if it leads the link back.",
)
STOP_TIMEOUT_SHORT = FindingCode(
    "STOP-TIMEOUT-SHORT",
    BLOCKER,
    "systemd would kill or give up a controlled shutdown that takes longer than TimeoutStopSec.",
    f"Set TimeoutStopSec={STOP_S:.0f} or more in the unit and run `systemctl daemon-reload`.",
)
STOP_LEAVES_PROCESS = FindingCode(
    "STOP-LEAVES-PROCESS",
    (BLOCKER, WARNING),
    "systemd calls a unit stopped while its process still runs: at once with KillMode=none, after TimeoutStopSec with "
    "SendSIGKILL=no. Another start then begins a second process.",
)
UNIT_NOT_RELOADED = FindingCode(
    "UNIT-NOT-RELOADED",
    BLOCKER,
    "The files of a unit have changed since systemd has read them. So the options, files and paths of its next start "
    "are unknown: the installation of a package, for example, lets systemd read the changed files.",
)
HOST_NAMED_TWICE = FindingCode(
    "HOST-NAMED-TWICE",
    BLOCKER,
    "The inventory has two names for one machine, so what two nodes on a host must not share is not compared.",
    "Write one of the names as the host of each of these nodes. Then print the sudoers file again.",
)
CLOCK_SKEW = FindingCode(
    "CLOCK-SKEW",
    BLOCKER,
    "The clock of a host and the clock of this machine differ by more than 5 s.",
    "Synchronize both clocks (chrony or systemd-timesyncd).",
)
HOST_RIGHT_MISSING = FindingCode(
    "HOST-RIGHT-MISSING",
    BLOCKER,
    "sudo refuses commands of a run.",
    "Add these lines to the sudoers file of the host (docs/hosts.md).",
)
HOST_VALUE_UNKNOWN = FindingCode(
    "HOST-VALUE-UNKNOWN",
    BLOCKER,
    "A host does not report a value.",
    "Log in to the host as the SSH user, find what hides the value or is missing there, and correct it. Then run "
    "`kafka-rollout inventory check`.",
)
FOREIGN_JARS = FindingCode("FOREIGN-JARS", WARNING, "The process has loaded jars that are not part of a Kafka archive.")
JARS_REPLACED = FindingCode(
    "JARS-REPLACED",
    WARNING,
    "Jars that the process has loaded were removed or replaced on the host since its start.",
)
PROCESS_HIDDEN = FindingCode(
    "PROCESS-HIDDEN",
    INFO,
    "The kernel hides the open files and the program of the process, so its release and its jars are those of its "
    "command line.",
    "No action is needed. Jars that a plugin loads by a class loader of its own were not checked for this node.",
)
LOG_CONFIG_UNREADABLE = FindingCode(
    "LOG-CONFIG-UNREADABLE",
    WARNING,
    "The logging library of the next release does not read the logging configuration of the process.",
)
LOG_LAYOUT_UNKNOWN = FindingCode(
    "LOG-LAYOUT-UNKNOWN",
    WARNING,
    "The log of a node is in a layout that gates cannot read: the first gate that needs it asks an approver, once.",
)
CONFIGURATION_NOT_READ = FindingCode(
    "CONFIGURATION-NOT-READ",
    (BLOCKER, WARNING),
    "The unit or its script names another file than configuration_file of the inventory, or the process began with "
    "another one. Or the next start has --override of a setting that the run changes in the file.",
)
CONFIGURATION_REWRITTEN = FindingCode(
    "CONFIGURATION-REWRITTEN",
    (BLOCKER, WARNING),
    "A start of the node writes configuration_file, so it can lose the lines of the run, or be another one than was "
    "checked. A blocker if what the start makes it from, such as a template, is newer than the process.",
)
JAVA_CHANGED = FindingCode(
    "JAVA-CHANGED", WARNING, "The next start of a node runs another Java than its process, also that of a rollback."
)
HOST_UNREACHABLE = FindingCode("HOST-UNREACHABLE", BLOCKER, "A host does not respond.")
HOST_REFUSED = FindingCode("HOST-REFUSED", BLOCKER, "A host refuses the login or a command, or its unit is wrong.")
HOSTS_CHECK = Check(
    "hosts",
    "Host of each node",
    "hosts.md#inventory",
    (
        RELEASE_NOT_ON_HOST,
        PACKAGE_UNAVAILABLE,
        PACKAGE_UNKNOWN,
        PACKAGE_NOT_HELD,
        PACKAGE_UNFINISHED,
        HOST_DISK_FULL,
        HOST_READ_ONLY,
        ARCHIVE_NOT_PINNED,
        SYMLINK_IS_NO_LINK,
        LINK_ELSEWHERE,
        STOP_TIMEOUT_SHORT,
        STOP_LEAVES_PROCESS,
        UNIT_NOT_RELOADED,
        UNIT_SEES_OTHER_FILE,
        *STOP_CODES,
        REQUIRED_UNIT_DOWN,
        *UNIT_START_CODES,
        PACKAGE_CHANGES_ACCESS,
        HOST_NAMED_TWICE,
        CLOCK_SKEW,
        HOST_RIGHT_MISSING,
        HOST_VALUE_UNKNOWN,
        FOREIGN_JARS,
        JARS_REPLACED,
        PROCESS_HIDDEN,
        JAR_SHADOWS_RELEASE,
        LOG_CONFIG_UNREADABLE,
        LOG_CONFIG_REPLACED,
        LOG_LAYOUT_UNKNOWN,
        CONFIGURATION_NOT_READ,
        CONFIGURATION_REWRITTEN,
        JAVA_CHANGED,
        *PATH_CODES,
        *START_PATH_CODES,
        *JVM_OPTION_CODES,
        START_SCRIPT_EDITED,
        START_COMMAND,
        CODEC_NOT_LOADABLE,
        SECURITY_LABEL_DIFFERS,
    ),
    of=(CheckOf.UPGRADE, CheckOf.DOWNGRADE, CheckOf.INVENTORY),
    needs=(),
    examines=Examined.HOSTS,
)
REACHABLE_CHECK = Check(
    "host-logins",
    "Hosts that respond and accept the login",
    "hosts.md#inventory",
    (HOST_UNREACHABLE, HOST_REFUSED),
    of=(CheckOf.INVENTORY,),
    needs=(),
    examines=Examined.HOSTS,
)


def host_problems(
    cluster: ClusterSpec,
    catalogue: Catalogue,
    hosts: Mapping[int, HostState],
    releases: Sequence[Release],
    *,
    changes: Sequence[ConfigChange] = (),
    restarts: bool = False,
) -> tuple[Finding, ...]:
    """Return the findings of all hosts. `hosts`: by node id, without nodes that have no host.

    `releases`: those that the nodes will run. `changes`: of their files. `restarts`: the run installs nothing.
    """
    of_releases = {key for release in releases for key in cluster.release_overrides.get(str(release), {})}
    changed: dict[int, Collection[str]] = (
        {}
        if restarts
        else {
            node.node_id: of_releases | {change.key for change in changes if change.node_id == node.node_id}
            for node in cluster.nodes
        }
    )
    return tuple(
        finding
        for node in cluster.nodes
        if (host := hosts.get(node.node_id)) is not None
        for finding in (
            *_problems(node, host, releases),
            *_read_only(node, host),
            *stop_findings(cluster, node, host),
            *_of_process(catalogue, node, host, releases),
            *shadowing_jars(node, host, releases),
            *_configuration_findings(node, host, changed.get(node.node_id, ())),
            # A run of levels alone starts no node.
            *(() if restarts and not releases else start_path_findings(node, host, releases)),
            *start_write_findings(node, host, releases),
            *(() if restarts and not releases else required_unit_findings(node, host)),
            *(() if restarts and not releases else unit_start_findings(node, host)),
            *package_script_findings(node, host),
            *jvm_option_losses(node, host, releases),
            *edited_script_findings(catalogue.scripts, node, host, releases),
            *start_command_findings(catalogue, node, host, releases),
            *security_label_findings(node, host, releases),
            *logging_file_findings(node, host, releases),
        )
    )


def _let_replace(node: NodeSpec) -> str:
    package = node.service.package if node.service is not None else None
    if package is None or replaces_held(package.install):
        return ""
    return "Add --allow-change-held-packages to `install` in the inventory, and print the sudoers file again. Then: "


def _read_only(node: NodeSpec, host: HostState) -> Iterable[Finding]:
    subject = f"node {node.node_id}"
    of_run = [folder for folder in host.read_only if folder in host.written]
    named = " and ".join(of_run or host.read_only)
    fact = f"The file system of {named} on host {host.name} is mounted read-only."
    of_package = node.service.release_parent if node.service is not None and node.service.package else ""
    if of_run == [of_package]:
        yield HOST_READ_ONLY.found(
            subject,
            f"{fact} The node would be stopped, and not be changed, unless the installation mounts it read-write "
            "itself.",
            "Check that `install` does it, for example by DPkg::Pre-Invoke of apt. Otherwise mount it read-write.",
            severity=WARNING,
        )
    elif of_run:
        yield HOST_READ_ONLY.found(subject, f"{fact} The node would be stopped, and not be changed.")
    elif host.read_only:
        yield HOST_READ_ONLY.found(
            subject,
            f"{fact} This run writes nothing there. Another run would fail.",
            "No action is needed for this run. If it must not be read-only, find the cause in `dmesg`.",
            severity=WARNING,
        )


def _elsewhere(subject: str, host: HostState, other: Elsewhere) -> Finding:
    fact = (
        f"{host.symlink} on host {host.name} leads to {other.link}. In the inventory, the folder of {other.release} is "
        f"{other.folder}"
    )
    if other.can_return:
        return LINK_ELSEWHERE.found(
            subject,
            f"{fact}. A rollback leads the link back to {other.link}; a later run to {other.release} does not.",
            "No action is needed for a rollback.",
            severity=INFO,
        )
    if other.folder_exists:
        sentence = f"{fact}, and a rollback would lead the link there, to what can be another build."
    else:
        sentence = f"{fact}, which does not exist, so a rollback would be refused."
    return LINK_ELSEWHERE.found(
        subject,
        sentence,
        f"Correct `installation` in the inventory, or make {other.folder} a link to {other.link}.",
        severity=WARNING if other.folder_exists else BLOCKER,
    )


def _problems(node: NodeSpec, host: HostState, releases: Sequence[Release]) -> Iterable[Finding]:
    subject = f"node {node.node_id}"
    for release in releases:
        if release not in host.releases and release not in host.unavailable:
            folder, lacks = host.folders.get(release, ""), host.lacks.get(release, "it was not found")
            yield RELEASE_NOT_ON_HOST.found(
                f"{subject}, release {release}",
                f"Kafka {release} is not installed on host {host.name}: {lacks}.",
                f"{host.repairs.get(release) or how_to_install(release, folder, lacks, host.login)} Then plan again."
                f"{_SCALA if release.major >= 4 and _OLD_SCALA in folder and CLOSED not in lacks else ''}",
            )
        if (
            (release not in host.releases or release in host.brought)
            and host.facts.release_bytes is not None
            and host.facts.release_bytes < _RELEASE_BYTES
        ):
            yield HOST_DISK_FULL.found(
                f"{subject}, release {release}",
                f"The file system of {host.folders.get(release)} on host {host.name} has "
                f"{size(host.facts.release_bytes)} left. A release needs {size(_RELEASE_BYTES)}.",
            )
        if release in host.unpinned:
            yield ARCHIVE_NOT_PINNED.found(
                f"{subject}, release {release}",
                f"The archive of Kafka {release} is compared only with the SHA-512 in the file next to it. This shows "
                "that the file is complete, and not where it comes from.",
            )
    if (back := host.no_return) is not None:
        lacks = host.lacks.get(back, "")
        folder = node.service.folder(back) if node.service is not None else ""
        yield RELEASE_NOT_ON_HOST.found(
            f"{subject}, release {back}, rollback",
            f"Node {node.name} runs Kafka {back}, and its folder on host {host.name} has it no more: {lacks}. A "
            f"rollback to {back} would be refused.",
            f"{host.repairs.get(back) or how_to_install(back, folder, lacks, host.login)} Then plan again.",
        )
    for release, problem in host.unavailable.items():
        code = PACKAGE_UNKNOWN if problem.is_unknown else PACKAGE_UNAVAILABLE
        yield code.found(f"{subject}, release {release}", problem.sentence, problem.remedy)
    if host.changed_java is not None:
        before, after = host.changed_java
        yield JAVA_CHANGED.found(
            subject,
            f"The process of node {node.name} runs {before}, and its next start runs {after}: JAVA_HOME or the link "
            "`java` in PATH was changed since its start. So does the start of a rollback.",
            f"Compare {after} with what each release of the run, also the older one, needs. If it is wrong, set "
            f"JAVA_HOME in the unit (`systemctl edit {host.unit}`).",
        )
    if renamed := {node_id: name for node_id, name in host.others.items() if name != host.name}:
        yield HOST_NAMED_TWICE.found(
            subject,
            f"Host {host.name} and {' and '.join(dict.fromkeys(renamed.values()))}, the host of "
            f"{nodes(sorted(renamed))}, are one machine: boot id, machine id and host name are the same.",
        )
    if host.unheld:
        yield PACKAGE_NOT_HELD.found(
            subject,
            f"{' and '.join(host.unheld)} on host {host.name} {'is' if len(host.unheld) == 1 else 'are'} not held, so "
            "an upgrade of the host's packages can install another release of Kafka, also during the run.",
            f"{_let_replace(node)}Run `apt-mark hold {' '.join(host.unheld)}` as root on host {host.name}. A run "
            "replaces a held package, and holds it again.",
        )
    if host.unfinished:
        yield PACKAGE_UNFINISHED.found(
            subject,
            f"dpkg has left {count(len(host.unfinished), 'package')} on host {host.name} unfinished: "
            f"{few(host.unfinished, limit=_SHOWN)}. The installation of Kafka includes them.",
        )
    if not host.symlink_can_switch:
        yield SYMLINK_IS_NO_LINK.found(
            subject, f"{host.symlink} on host {host.name} is not a symbolic link, so the release cannot be switched."
        )
    if host.elsewhere is not None and {*releases} - {host.elsewhere.release}:
        yield _elsewhere(subject, host, host.elsewhere)
    yield from _stop(subject, host)
    if host.needs_reload:
        yield UNIT_NOT_RELOADED.found(
            subject,
            f"The files of {host.unit} on host {host.name} have changed since systemd has read them: "
            f"{host.needs_reload}. What was checked of the unit is not what its next start has.",
            f"Check these files, run `systemctl daemon-reload` as root on host {host.name}, and check the unit with "
            f"`systemctl cat {host.unit}`. Then plan again; a rollback can be repeated.",
        )
    yield from unit_mount_findings(node, host)
    if abs(host.facts.clock_skew_s) > CLOCK_SKEW_S:
        skew = host.facts.clock_skew_s
        yield CLOCK_SKEW.found(
            subject,
            f"The clock of host {host.name} is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the clock of "
            f"this machine. The gates compare times of both, and accept {CLOCK_SKEW_S:.0f} s.",
        )
    if host.denied:
        yield HOST_RIGHT_MISSING.found(
            subject,
            f"sudo on host {host.name} refuses {len(host.denied)} of the commands of a run: {'; '.join(host.denied)}."
            + (f" {host.old_sudo} reads no regular expressions (`^…$`)." if host.old_sudo else ""),
            _sudo_remedy(host.old_sudo),
        )
    for what in host.unknown:
        yield HOST_VALUE_UNKNOWN.found(f"{subject}, {what}", f"Host {host.name} does not report {what}.")
    yield from path_findings(node, host)
    if host.unread_log:
        log = (node.service.log_file if node.service else None) or f"the journal of {host.unit}"
        yield LOG_LAYOUT_UNKNOWN.found(
            subject,
            f"None of the last {host.unread_log} lines of {log} on host {host.name} has a layout that gates can read. "
            f"A log that does not show what node {node.node_id} has loaded proves nothing: after its restart, its gate "
            "would wait for the whole time, and then need an approver.",
            f"Let the node also write `[%d] %p %m (%c)%n`, Kafka's own layout, at level INFO: to {log}, or to another "
            "file that log_file of the inventory names. Restart the node. Or accept the log of each node in the run.",
        )
    if host.package_bytes is not None and host.package_bytes < _PACKAGE_BYTES:
        yield HOST_DISK_FULL.found(
            f"{subject}, packages",
            f"The package manager of host {host.name} has {size(host.package_bytes)} left for its state and its "
            f"downloads (/var/lib, /var/cache). It needs {size(_PACKAGE_BYTES)}: a full file system breaks an "
            "installation off after the stop of the node.",
            "Free space on this file system, for example with `apt-get clean` or `dnf clean packages` as root.",
        )
    is_low = host.home_bytes is not None and host.home_bytes < _FREE_BYTES
    if host.home_full or is_low:
        home = f"the home folder of the SSH user {host.login}".rstrip()
        yield HOST_DISK_FULL.found(
            f"{subject}, home",
            (
                f"Host {host.name} takes no file in {home}: {host.home_full}."
                if host.home_full
                else f"The file system of {home} on host {host.name} has {host.home_bytes} bytes left."
            )
            + " A run records there what it starts and changes, while the node is stopped.",
            f"Free space, files (`df --inodes`) or the quota of {home}.",
        )
    for folder, free in host.few_files.items():
        yield HOST_DISK_FULL.found(
            f"{subject}, files of {folder}",
            f"The file system of {folder} on host {host.name} takes only {count(free, 'more file')}, whatever its free "
            "space is. The run writes files there while the node is stopped.",
            "Remove files from this file system (`df --inodes`).",
        )
    if host.free_bytes is not None and host.free_bytes < _FREE_BYTES:
        yield HOST_DISK_FULL.found(
            subject,
            f"The file system of the configuration on host {host.name} has {host.free_bytes} bytes left. A run copies "
            "the configuration there.",
        )


def _stop(subject: str, host: HostState) -> Iterable[Finding]:
    """Yield how systemd ends a stop before the process has ended."""
    after_s = math.inf if host.stop_timeout_s is None else host.stop_timeout_s
    if host.kill_mode == "none":
        yield STOP_LEAVES_PROCESS.found(
            subject,
            f"systemd stops no process of {host.unit} on host {host.name} (KillMode=none): the unit is inactive when "
            "ExecStop= has returned, while Kafka still shuts down.",
            f"Remove KillMode= from the unit and its drop-ins (`systemctl edit --full {host.unit}`). systemd then "
            "sends SIGTERM, which is Kafka's controlled shutdown, and waits.",
        )
    elif not host.sends_sigkill and after_s < math.inf:
        yield STOP_LEAVES_PROCESS.found(
            subject,
            f"If {host.unit} on host {host.name} still shuts down {after_s:.0f} s after a stop was requested "
            "(TimeoutStopSec), systemd calls it failed and leaves its process alive (SendSIGKILL=no). A run waits for "
            "the process, but a start by an operator or by a boot does not.",
            "Set TimeoutStopSec=infinity, or remove SendSIGKILL=, and run `systemctl daemon-reload`.",
            severity=WARNING,
        )
    if after_s < STOP_S and host.kill_mode != "none":
        does = "kills" if host.sends_sigkill else "gives up"
        yield STOP_TIMEOUT_SHORT.found(
            subject,
            f"systemd {does} {host.unit} on host {host.name} {after_s:.0f} s after a stop was requested "
            f"(TimeoutStopSec). A controlled shutdown can take {STOP_S:.0f} s.",
        )


def _sudo_remedy(old_sudo: str) -> str | None:
    if old_sudo.startswith(SUDO_RS):
        return (
            f"Use the other sudo, 1.9.10 or later, on the host: {SUDO_RS} does not accept these lines. On Ubuntu, run "
            "`update-alternatives --set sudo /usr/bin/sudo.ws` as root, then check the file with `visudo -c`."
        )
    if old_sudo:
        return (
            "Remove the file from /etc/sudoers.d and install sudo 1.9.10 or later on the host, then save the file "
            "again: an older one rejects these lines with a syntax error. Before 1.9.3, sudo then refuses every "
            "command of every user."
        )
    return None


def _of_process(
    catalogue: Catalogue, node: NodeSpec, host: HostState, releases: Sequence[Release]
) -> Iterable[Finding]:
    """Return warnings about what the process has loaded and a later release may not load."""
    subject = f"node {node.node_id}"
    for release in releases:
        jars = host.facts.release_jars.get(release, frozenset())
        if foreign := find_foreign_jars(host, jars):
            names = {path: path.rsplit("/", 1)[1] for path in foreign}
            moved = [name for path, name in names.items() if "/libs/" in path and name not in jars]
            missing = f" The folder of {release} does not have {few(moved, limit=_MOST_JARS)}." if moved else ""
            gone = _dropped_libraries(host, foreign, jars) if jars else []
            missing += f" Libraries of Kafka that it does not have either: {few(gone, limit=_SHOWN)}." if gone else ""
            yield FOREIGN_JARS.found(
                f"{subject}, release {release}",
                f"The process of node {node.node_id} has loaded jars that do not belong to its release: "
                f"{few(foreign, limit=_MOST_JARS)}.{missing}",
                f"Check that these plugins (authorizers, tiered storage, reporters) support {release}, and that they "
                "are in its class path with each jar that they use. A library that they took from Kafka's folder must "
                "come with them.",
            )
    yield from _replaced_jars(subject, node, host)
    if host.facts.hidden and host.facts.loaded_jars:
        yield PROCESS_HIDDEN.found(
            subject,
            f"The open files of the process of node {node.node_id} on host {host.name} cannot be read, because "
            f"{host.facts.hidden}. Its jars are those that its command line names.",
        )
    for release in releases:
        library = catalogue.get(release).logging if release in catalogue else ""
        if found := _unreadable_log_config(host, library):
            yield LOG_CONFIG_UNREADABLE.found(
                f"{subject}, release {release}",
                f"The process of node {node.node_id} reads its logging configuration from {found}. Kafka {release} "
                f"logs with {library}, which reads such a file in part or not at all: the node could run and not log.",
                f"Write a file for {library} outside the folders of releases. In the environment of the unit, add "
                f"-D{_LOGGING[library]} with its path to the end of KAFKA_LOG4J_OPTS, and keep what is there for a "
                "rollback. "
                "Without KAFKA_LOG4J_OPTS, the node uses the file of the release.",
            )


def _replaced_jars(subject: str, node: NodeSpec, host: HostState) -> Iterable[Finding]:
    """The process keeps the files open that it has loaded, so it goes on."""
    if jars := host.facts.replaced_jars:
        yield JARS_REPLACED.found(
            f"{subject}, replaced jars",
            f"{few(jars, limit=_SHOWN)} on host {host.name} {'was' if len(jars) == 1 else 'were'} replaced since the "
            f"process of node {node.node_id} has loaded {'it' if len(jars) == 1 else 'them'}, such as by a package or "
            "an archive that was unpacked again. The process keeps the old content until its next start.",
            "Check that the files are those of the release that the node must run: NEXT-START-DIFFERS names another "
            "one. The next start of the node by a run ends this warning (`kafka-rollout restart`, an upgrade).",
        )
    if jars := host.facts.removed_jars:
        yield JARS_REPLACED.found(
            f"{subject}, removed jars",
            f"{few(jars, limit=_SHOWN)} on host {host.name} {'was' if len(jars) == 1 else 'were'} removed since the "
            f"process of node {node.node_id} has loaded {'it' if len(jars) == 1 else 'them'}. The next start does not "
            "have the classes, such as those of a plugin, a log appender or a login callback.",
            "Put the files back if the node needs them after its next start, on the release that it has then. The next "
            "start of the node by a run ends this warning (`kafka-rollout restart`, an upgrade).",
        )


def _configuration_findings(node: NodeSpec, host: HostState, changed: Collection[str]) -> Iterable[Finding]:
    """Yield what the command line of the start (`kafka.Kafka FILE [--override KEY=VALUE]...`) says of other settings,
    and what writes the file at a start.

    The configuration that a runtime reads has the overrides. Their values can be passwords, so only names are shown.
    """
    arguments = host.facts.arguments
    if node.service is not None and changed and host.writers:
        yield CONFIGURATION_REWRITTEN.found(
            f"node {node.node_id}",
            f"A start of node {node.node_id} writes {node.service.configuration_file} on host {host.name} "
            f"({few(host.writers, limit=2)}), so it loses the lines of the plan that its template does not have: "
            f"{few(sorted(changed), limit=_SHOWN)}.",
            "Write these lines into the template that the start uses, too. The gate after the start fails without "
            "them.",
            severity=WARNING,
        )
    if node.service is None:
        return
    if host.writer_doubt:
        yield CONFIGURATION_REWRITTEN.found(
            f"node {node.node_id}, next configuration",
            f"The next start of node {node.node_id} writes {node.service.configuration_file} on host {host.name} "
            f"({few(host.writers, limit=2)}), and {host.writer_doubt}. The node can start with another node.id, other "
            "log directories or other access rules than those that the plan has checked.",
            f"Compare what the start would write with the file. If it differs, restart the node by `systemctl restart "
            f"{host.unit}` when its gates allow a stop, or put back what is newer. Then plan again. To end this "
            f"finding, let the tool that deploys {host.unit} write the file, and remove the command from the start."
            if host.writer_is_newer
            else "Let the command write to another path, and compare the result with the file. If both have the same "
            "lines, no action is needed: the approval of the plan accepts them. To end this warning, let the tool that "
            f"deploys {host.unit} write the file, and remove the command from the start.",
            severity=BLOCKER if host.writer_is_newer else WARNING,
            covers=(host.writer_doubt, *host.writers),
        )
    # Without a process, the unit alone shows the file.
    start = arguments.index(MAIN_CLASS) + 1 if MAIN_CLASS in arguments else len(arguments)
    read = (*arguments[start:], "")[0]
    file = node.service.configuration_file
    if found := _other_configuration(host, read, file):
        other, is_known = found
        yield CONFIGURATION_NOT_READ.found(
            f"node {node.node_id}, configuration_file",
            f"Node {node.node_id} is started with {other}, and the inventory has {file}"
            + (
                ", which is another file: a run would read and write a file that the node does not read."
                if is_known
                else "."
            ),
            "Write the file that the unit or its script names into the inventory (configuration_file). If the unit was "
            "changed after the start of the process, restart it (`systemctl restart`).",
            severity=BLOCKER if is_known else WARNING,
        )
    if names := sorted(host.overrides & set(changed)):
        yield CONFIGURATION_NOT_READ.found(
            f"node {node.node_id}, --override",
            f"The next start of node {node.node_id} has --override of {few(names, limit=_SHOWN)}, which counts more "
            f"than {file}, into which the run writes.",
            "Move these settings from the unit into the file, and restart the node (kafka-rollout restart).",
            severity=BLOCKER,
        )


def _other_configuration(host: HostState, read: str, file: str) -> tuple[str, bool] | None:
    """Return the file that the node reads instead of `file`, and whether it is known to be another one; None if it
    reads `file`. `read`: the argument of its process."""
    seen = {
        path.path: path
        for path in host.start_paths
        if path.kind is StartFileKind.CONFIGURATION and path.now.state is not PlaceState.HIDDEN
    }
    named = [path for path in seen.values() if path.is_of_unit] or [seen[name] for name in (read,) if name in seen]
    if named and file in seen:
        other = [path.path for path in named if path.now.path != seen[file].now.path]
        return (few(other), True) if len(other) == len(named) else None
    # The folder of a relative path is not known.
    is_it = f"/{file}".endswith(f"/{posixpath.normpath(read)}") if read[:1] != "/" else posixpath.normpath(read) == file
    return (read, False) if read and not is_it else None


def find_foreign_jars(host: HostState, others: Collection[str]) -> tuple[str, ...]:
    """Return the paths of loaded jars that are not part of an archive of Kafka, without Java agents. `others`: the jars
    in the folder of another release."""
    agents = {
        arg.removeprefix("-javaagent:").partition("=")[0]
        for arg in host.facts.arguments
        if arg.startswith("-javaagent:")
    }
    own = [version for name, version in map(_artifact, host.facts.loaded_jars) if name.startswith("kafka_2.")]
    there = {_artifact(f"/{name}")[0] for name in others}
    return tuple(
        path
        for path in sorted(set(host.facts.loaded_jars) - agents)
        if not _JAVA.search(path) and not _belongs(*_artifact(path), own, there)
    )


def _belongs(artifact: str, version: str, own: Sequence[str], there: Collection[str]) -> bool:
    if _KAFKA.fullmatch(artifact):
        return version in own
    return bool(_LIBRARIES.fullmatch(artifact) or (_FAMILIES.fullmatch(artifact) and artifact in there))


def _dropped_libraries(host: HostState, foreign: Collection[str], others: Collection[str]) -> list[str]:
    """Return the libraries of the running release that another one does not have in any version: a plugin can use
    them."""
    there = {_artifact(f"/{name}")[0] for name in others}
    loaded = [path for path in host.facts.loaded_jars if "/libs/" in path and path not in foreign]
    names = {path.rsplit("/", 1)[1]: _artifact(path)[0] for path in loaded}
    return sorted(name for name, artifact in names.items() if artifact not in there and not _KAFKA.fullmatch(artifact))


def _artifact(path: str) -> tuple[str, str]:
    """Return name and version of a jar; the version is "" if the name has none."""
    match = _JAR.fullmatch(path.rsplit("/", 1)[1])
    return (match[1], match[2] or "") if match else (path, "")


def _unreadable_log_config(host: HostState, logging: str) -> str:
    """Return the operator's own file for the other logging library; empty if there is none."""
    options = dict(arg[2:].split("=", 1) for arg in host.facts.arguments if arg.startswith("-D") and "=" in arg)
    options = {_LOGGING["log4j2"] if name in _NAMES_OF_LOG4J_2 else name: value for name, value in options.items()}
    if logging not in _LOGGING or _LOGGING[logging] in options:
        return ""
    explicit = {path.path for path in host.start_paths if path.is_of_unit and path.kind is StartFileKind.LOGGING}
    for library, name in _LOGGING.items():
        value = options.get(name, "").removeprefix("file://").removeprefix("file:")
        # The start script's own default, which it takes from the release.
        is_own = _OF_SCRIPT in value and value not in explicit
        if library != logging and value and not is_own:
            return posixpath.normpath(value)
    return ""
