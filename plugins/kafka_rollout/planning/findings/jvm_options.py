"""Findings about options of a node's process that its next start does not have.

A process has the options that its start found. A switch of the release takes those away that a script in the folder of
the old release sets, and a change of the unit's environment those that it had before.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from kafka_rollout.base.findings import BLOCKER, WARNING, Finding, FindingCode
from kafka_rollout.base.wording import few
from kafka_rollout.model.host_state import HostState
from kafka_rollout.model.jvm_options import AGENTS, LostOption, NextOptions, agent_port
from kafka_rollout.model.topology import NodeSpec, ServiceSpec
from kafka_rollout.releases.facts import Release

_SHOWN = 8
JVM_OPTION_LOST = FindingCode(
    "JVM-OPTION-LOST",
    (BLOCKER, WARNING),
    "A start script in the folder of the running release sets an option of the JVM, and that of the next release does "
    "not. A blocker for logins, keys, the heap, agents, jars that the process has loaded, the log that gates read, and "
    "the login of an open JMX port.",
)
JVM_OPTION_GONE = FindingCode(
    "JVM-OPTION-GONE",
    (BLOCKER, WARNING),
    "A process has an option that neither the unit's environment nor a start script gives it any more. A blocker as "
    "before, unless the run only restarts the node.",
)
JVM_OPTION_UNKNOWN = FindingCode(
    "JVM-OPTION-UNKNOWN",
    WARNING,
    "It is unknown whether the next start has an option: the SSH user cannot read a start script, or its text does not "
    "show all options that it gives.",
)
JVM_OPTION_TWICE = FindingCode(
    "JVM-OPTION-TWICE",
    (BLOCKER, WARNING),
    "The next start gets a Java agent twice, such as from the unit and from a wrapper. A blocker if two agents open "
    "the same port.",
)
JVM_OPTION_CODES = (JVM_OPTION_LOST, JVM_OPTION_GONE, JVM_OPTION_UNKNOWN, JVM_OPTION_TWICE)

_LOGINS = re.compile(
    r"-D(java\.security\.|javax\.(net|security)\.|org\.apache\.kafka\.|jdk\.|sun\.(security|net)\.|com\.sun\.security\.|"
    r"org\.bouncycastle\.|java\.protocol)"
)
_HEAP = re.compile(r"-Xm[xsn]|-XX:(Max|Min|Initial)(RAM|Heap)|-XX:MaxDirectMemorySize")
_JMX_LOGIN = re.compile(
    r"-Dcom\.sun\.management\.jmxremote\.(?!(authenticate|ssl|ssl\.need\.client\.auth|registry\.ssl)=false$)"
    r"(authenticate|ssl|password|access|login|registry)[.=]",
    re.IGNORECASE,
)
_JMX_PORT = "-Dcom.sun.management.jmxremote.port="
_LOG_FOLDER = "-Dkafka.logs.dir="
_LOGGING = re.compile(r"-Dlog4j2?\.configuration(File)?=")
_OR_SCRIPT = "If a wrapper, or a start script of the next release, sets the variable itself, write them there."
_BASE = re.compile(r"/bin/\.\.(?=/|$)")


def jvm_option_losses(node: NodeSpec, host: HostState, releases: Sequence[Release]) -> Iterator[Finding]:
    """Yield the findings of one node. Without `releases`, those of a switch to Kafka's own scripts, as warnings."""
    service = node.service
    if service is None:
        return
    gone: dict[str, LostOption] = {}
    unsure: dict[str, LostOption] = {}
    why: dict[str, None] = {}
    givers: dict[str, None] = {}
    twice: dict[tuple[str, str], None] = {}
    restarts = bool(releases) and all(host.starts_installed(release) for release in releases)
    opens_jmx = _opens_jmx([host.options.get(release, NextOptions()) for release in (*releases,) or (None,)])
    for release in (*releases,) or (None,):
        options = host.options.get(release, NextOptions())
        gone |= {one.option: one for one in options.gone}
        subject = f"node {node.node_id}" + ("" if release is None else f", release {release}")
        for is_needed in (True, False):
            lost = [one for one in options.lost if _is_needed(one, host, service, opens_jmx=opens_jmx) == is_needed]
            if lost:
                yield _lost(node, host, release, lost, f"{subject}, start script", is_needed=is_needed)
        if options.unclear:
            names = few([one.option for one in options.unclear], limit=_SHOWN)
            unread = few([*dict.fromkeys((*options.unread, *options.why))], limit=_SHOWN)
            yield JVM_OPTION_UNKNOWN.found(
                f"{subject}, start script",
                f"The process of node {node.node_id} has {names}. It is unknown whether its next start has them too, "
                f"because this part of its start on host {host.name} cannot be read, or its text does not show what it "
                f"gives: {unread}.",
                f"Write these options into {_unit(service)} and remove them from the script, or let the SSH user read "
                "the scripts.",
            )
        unsure |= {one.option: one for one in options.unsure}
        why |= dict.fromkeys(options.why)
        givers |= dict.fromkeys(options.givers)
        twice |= dict.fromkeys(options.twice)
    if unsure:
        names = few([*unsure], limit=_SHOWN)
        yield JVM_OPTION_UNKNOWN.found(
            f"node {node.node_id}, start",
            f"The process of node {node.node_id} has {names}. It is unknown whether its next start has them too: "
            f"the text of its start on host {host.name} does not show all options that it gives: "
            f"{few([*why], limit=_SHOWN)}.",
            "Check that what is named here still gives these options. If it does, approve this with the plan. Do not "
            "write them into the unit as well: an agent that is given twice can prevent the start.",
        )
    for binds in (True, False):
        if pairs := [pair for pair in twice if bool(agent_port(pair[0])) == binds]:
            ends = "Both open the same port, so Java ends at once." if binds else "Some agents end the start then."
            yield JVM_OPTION_TWICE.found(
                f"node {node.node_id}, agents" + ("" if binds else " without a port"),
                f"The next start of node {node.node_id} on host {host.name} gets these agents together: "
                f"{few([' and '.join(pair) for pair in pairs], limit=_SHOWN)}. {ends}",
                "Leave each of them in one place only: "
                f"{few([f'the environment of {service.unit}', *givers], limit=_SHOWN)}.",
                severity=BLOCKER if binds else WARNING,
            )
    for is_needed in (True, False):
        found = [one for one in gone.values() if _is_needed(one, host, service, opens_jmx=opens_jmx) == is_needed]
        if found:
            names = few([one.option for one in found], limit=_SHOWN)
            yield JVM_OPTION_GONE.found(
                f"node {node.node_id}, {'needed' if is_needed else 'other'} options",
                f"The process of node {node.node_id} on host {host.name} has {names}. Neither the environment of "
                f"{service.unit} nor a start script gives it any more, so the next start will not have it."
                f"{_jmx_result(found) if is_needed else ''}",
                f"{_where(service, [*givers])} "
                + (
                    "Or approve with the plan that the restart removes them."
                    if restarts
                    else "Or, if the node does not need them, restart it (kafka-rollout restart, or `systemctl "
                    "restart`), and check it. Then plan again."
                ),
                severity=BLOCKER if is_needed and not restarts else WARNING,
            )


def _lost(
    node: NodeSpec,
    host: HostState,
    release: Release | None,
    lost: Sequence[LostOption],
    subject: str,
    *,
    is_needed: bool,
) -> Finding:
    lines = list(dict.fromkeys(line for one in lost for line in one.lines))
    names = few([f"{one.option} (then {one.now})" if one.now else one.option for one in lost], limit=_SHOWN)
    where = f": {few(lines, limit=_SHOWN)}" if lines else ""
    is_package = node.service is not None and node.service.package is not None
    then = (
        "A package can replace them."
        if is_package
        else "Those of another release do not, unless they were changed too."
        if release is None
        else f"Those of Kafka {release} do not, so the switch drops these options."
    )
    remedy = (
        f"Write them into {_unit(node.service) if node.service else 'the unit'}, in KAFKA_HEAP_OPTS, KAFKA_OPTS, "
        "KAFKA_JMX_OPTS, JMX_PORT or CLASSPATH: no restart is needed before the run. "
        f"{_OR_SCRIPT} Or, if the node does not need them, remove them from the script, and restart the node. Then "
        "plan again."
    )
    is_certain = release is not None and not is_package
    return JVM_OPTION_LOST.found(
        subject if is_needed else f"{subject}, other options",
        f"The start scripts in the folder of the running release set {names} for node {node.node_id} on host "
        f"{host.name}{where}. {then}{_jmx_result(lost) if is_needed else ''}",
        remedy,
        severity=BLOCKER if is_needed and is_certain else WARNING,
    )


def _opens_jmx(options: Sequence[NextOptions]) -> bool:
    """Return whether a next start can open a port for JMX."""
    words = (word for one in options for word in (*one.arguments, *(unclear.option for unclear in one.unclear)))
    return any(word.startswith(_JMX_PORT) for word in words)


def _jmx_result(lost: Sequence[LostOption]) -> str:
    """Source: kafka-run-class.sh, which sets KAFKA_JMX_OPTS if it is empty."""
    if not any(_JMX_LOGIN.match(one.option) for one in lost):
        return ""
    return (
        " The next start opens its JMX port, and Kafka's script sets authenticate=false and ssl=false for "
        "it: who reaches the port could run code as the user of the node."
    )


def _is_needed(lost: LostOption, host: HostState, service: ServiceSpec, *, opens_jmx: bool) -> bool:
    """Return whether the node would not start, run out of memory, hide from the gates, or open a port to everybody
    without an option. `opens_jmx`: as `_opens_jmx`.

    Another value in the environment is a decision of the operator.
    """
    option = lost.option
    if lost.now:
        return False
    if lost.entry:
        return any(map(lost.has_jar, set(host.facts.loaded_jars) - set(host.facts.removed_jars)))
    if option.startswith(_LOG_FOLDER) and service.log_file is not None:
        folder = posixpath.normpath(_BASE.sub("", option.removeprefix(_LOG_FOLDER)))
        return service.log_file.startswith(f"{folder}/")
    if _LOGGING.match(option):
        return service.log_file is not None
    if _JMX_LOGIN.match(option):
        return opens_jmx
    return bool(_LOGINS.match(option) or _HEAP.match(option) or option.startswith(AGENTS))


def _where(service: ServiceSpec, givers: Sequence[str]) -> str:
    """Return where options belong that nothing gives."""
    if not givers:
        return f"Write the options into {_unit(service)}. {_OR_SCRIPT}"
    return (
        f"Write the options into {few(list(givers), limit=_SHOWN)}, which sets such variables itself, or into "
        f"{_unit(service)}. Do not write an option into both: an agent that is given twice can prevent the start."
    )


def _unit(service: ServiceSpec) -> str:
    return f"the unit (`systemctl edit {service.unit}`, then `systemctl daemon-reload`)"
