"""Findings about whether systemd starts the unit of a node again after a run has stopped it."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_rollout.base.findings import BLOCKER, WARNING, Finding, FindingCode
from kafka_rollout.base.wording import few, few_quoted
from kafka_rollout.model.host_state import HostState, OwnName
from kafka_rollout.model.node_log import hide_credentials
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.planning.findings.start_paths import START_PATH_MISSING

UNIT_NOT_STARTABLE = FindingCode(
    "UNIT-NOT-STARTABLE",
    (BLOCKER, WARNING),
    "systemd would refuse to start the unit of a node after its stop (RefuseManualStart=), or not have it any more: a "
    "transient unit has no file that stays. A warning if only a boot removes its file.",
)
UNIT_UPHELD = FindingCode(
    "UNIT-UPHELD",
    BLOCKER,
    "Another unit has Upholds= of the unit of a node, so systemd starts the node again after each stop, before the run "
    "has changed it.",
)
START_CONDITION = FindingCode(
    "START-CONDITION",
    WARNING,
    "A command of the unit (ExecCondition=, ExecStartPre=, ExecStartPost=), of a script before Kafka, or a oneshot "
    "unit that it requires, decides at each start whether the node runs after it. Its next result is unknown.",
)
START_REMOVES_DATA = FindingCode(
    "START-REMOVES-DATA",
    BLOCKER,
    "A command of the unit or of its scripts removes a log directory, or data in it, at each start or stop of a node.",
)
START_WRITES_FILE = FindingCode(
    "START-WRITES-FILE",
    WARNING,
    "A command of a start writes a file that the node then reads, such as a keystore or an environment file, and can "
    "write another one than at the last start.",
)
UNIT_SETTINGS_UNKNOWN = FindingCode(
    "UNIT-SETTINGS-UNKNOWN",
    WARNING,
    "The unit of a node has settings that no check reads, and that can decide whether and with what systemd starts it.",
)
NEXT_PROCESS_RESTRICTED = FindingCode(
    "NEXT-PROCESS-RESTRICTED",
    WARNING,
    "By the settings of its unit, the next process of a node gets lower limits, fewer capabilities or more filters "
    "than the one that runs: a line that gave it more was removed, or the settings were changed, since its start.",
)
ENVIRONMENT_GONE = FindingCode(
    "ENVIRONMENT-GONE",
    (BLOCKER, WARNING),
    "The configuration of a node takes a variable from its environment (`${env:NAME}`) that the next start does not "
    "have. A warning if a file that sets such variables can be newer than the process.",
)
LISTENER_UNRESOLVED = FindingCode(
    "LISTENER-UNRESOLVED",
    BLOCKER,
    "The host of a node cannot resolve a name in its listeners, or its own name, which Kafka takes for a listener "
    "without a host. So the next start ends.",
)
OWN_NAME_CHANGED = FindingCode(
    "OWN-NAME-CHANGED",
    BLOCKER,
    "A listener of a node has no host, and the name of its own host is another one than the cluster has for the node. "
    "Clients and other nodes get this name after the next start.",
)
LISTENER_MOVED = FindingCode(
    "LISTENER-MOVED",
    BLOCKER,
    "A name in the listeners of a node leads to an address that its host does not have, or to loopback while the "
    "process listens elsewhere.",
)
CONTROLLER_UNRESOLVED = FindingCode(
    "CONTROLLER-UNRESOLVED",
    (BLOCKER, WARNING),
    "The host of a node cannot resolve a controller in its configuration. A blocker if it can resolve none.",
)
UNIT_START_CODES = (
    UNIT_NOT_STARTABLE,
    UNIT_UPHELD,
    START_CONDITION,
    START_REMOVES_DATA,
    START_WRITES_FILE,
    NEXT_PROCESS_RESTRICTED,
    ENVIRONMENT_GONE,
    LISTENER_UNRESOLVED,
    LISTENER_MOVED,
    OWN_NAME_CHANGED,
    CONTROLLER_UNRESOLVED,
    UNIT_SETTINGS_UNKNOWN,
)
_TRANSIENT, _UNTIL_BOOT = "/run/systemd/transient/", "/run/systemd/system/"


def unit_start_findings(node: NodeSpec, host: HostState) -> Iterator[Finding]:
    """Yield the findings of one node."""
    subject, on = f"node {node.node_id}", f"{host.unit} on host {host.name}"
    write = (
        f"Write {host.unit} as a file in /etc/systemd/system with the same settings (`systemctl cat {host.unit}` shows "
        "them), run `systemctl daemon-reload` as root, and restart the node. Then plan again."
    )
    if host.is_transient or host.unit_file.startswith(_TRANSIENT):
        yield UNIT_NOT_STARTABLE.found(
            subject,
            f"{on} is a transient unit (systemd-run). systemd forgets it at its stop, with the command that starts "
            f"node {node.node_id}, so neither a run nor its rollback could start the node again.",
            write,
            severity=BLOCKER,
        )
        return
    if not host.can_start:
        yield UNIT_NOT_STARTABLE.found(
            subject,
            f"systemd refuses `systemctl start {host.unit}` on host {host.name} (CanStart=no, by RefuseManualStart=yes "
            f"of the unit), and permits a stop. Neither a run nor its rollback could start node {node.node_id} again.",
            f"Remove RefuseManualStart= (`systemctl edit --full {host.unit}`), and run `systemctl daemon-reload` as "
            f"root on host {host.name}. Then plan again.",
            severity=BLOCKER,
        )
    if host.upheld_by:
        yield UNIT_UPHELD.found(
            f"{subject}, Upholds=",
            f"{few(host.upheld_by)} on host {host.name} has Upholds={host.unit}: systemd starts node {node.node_id} "
            "again after each stop, on its old release, while the run changes it.",
            f"Remove Upholds={host.unit} from {few(host.upheld_by)} (`systemctl edit --full`), or the link in its "
            "folder .upholds, and run `systemctl daemon-reload` as root. Wants= starts the node with this unit, too. "
            "Then plan again.",
        )
    if host.unit_file.startswith(_UNTIL_BOOT):
        yield UNIT_NOT_STARTABLE.found(
            f"{subject}, boot",
            f"The file of {on} is {host.unit_file}, which a boot removes. If the host boots while node {node.node_id} "
            "is stopped, nothing can start the node.",
            write,
            severity=WARNING,
        )
    if host.start_conditions:
        shown = [hide_credentials(one) for one in host.start_conditions]
        yield START_CONDITION.found(
            f"{subject}, commands of {host.unit}",
            f"{on} runs {few_quoted(shown)} at each start (ExecCondition=, ExecStartPre=, ExecStartPost=, scripts "
            f"before Kafka). If one fails, node {node.node_id} does not start, or systemd stops it again. It is not "
            "known what they return then.",
            "Check that what each of them asks, such as a token, a server or a mount, answers as at the last start, "
            "and that what it copies or changes is there, as the start needs it. Correct what is not, or remove the "
            f"command from {host.unit} or its script.",
            covers=shown,
        )
    for command, directory in host.start_removals:
        yield START_REMOVES_DATA.found(
            f"{subject}, {directory}",
            f"{on} runs `{hide_credentials(command)}` when it starts or stops node {node.node_id}. It removes data of "
            f"the log directory {directory}, and a rollback does not bring it back.",
            f"Remove the command from {host.unit} or its script, and run `systemctl daemon-reload` as root on host "
            f"{host.name}. Do not stop the node before that. Then plan again.",
        )
    for path, doubt in host.written_files:
        yield START_WRITES_FILE.found(
            f"{subject}, {path}",
            f"The next start of node {node.node_id} writes {path} on host {host.name} before Kafka reads it, and "
            f"{hide_credentials(doubt)}. The node can start with other keys, options or rights than the plan has "
            "checked, or not at all.",
            f"Check what the start writes now (`systemctl cat {host.unit}`, and the units that it starts). If the node "
            "can start with it, no action is needed: the approval of the plan accepts it.",
            covers=(path, hide_credentials(doubt)),
        )
    if host.environment_gone:
        names = few(host.environment_gone)
        yield ENVIRONMENT_GONE.found(
            f"{subject}, environment",
            f"The configuration of node {node.node_id} takes {names} from the environment (`${{env:NAME}}`), and "
            f"neither {on} nor a script of its start sets {names}. The next start ends with an error, also after a "
            "rollback.",
            f"Set these variables in the environment of {host.unit}, with the values that the process has, or write "
            "the values into the configuration. Then plan again.",
            severity=BLOCKER,
        )
    if host.environment_newer:
        names, files = few(sorted(host.environment_names)), few(host.environment_newer)
        yield ENVIRONMENT_GONE.found(
            f"{subject}, changed environment",
            f"The configuration of node {node.node_id} takes {names} from the environment (`${{env:NAME}}`), and "
            f"{files} on host {host.name} can be newer than its process. The next start can have other values.",
            "Compare the values in these files with those of the process (/proc/PID/environ). If they are the same, no "
            "action is needed: the approval of the plan accepts them.",
            severity=WARNING,
            covers=host.environment_newer,
        )
    for name in host.unresolved_listeners:
        yield LISTENER_UNRESOLVED.found(
            f"{subject}, {name}",
            f"`listeners` of node {node.node_id} has the name {name}, and host {host.name} cannot resolve it now. "
            "The next start cannot bind to it and ends, also after a rollback.",
            f"Let host {host.name} resolve {name}, for example by a line in /etc/hosts, or write the address into "
            "`listeners`. Then plan again.",
        )
    if host.own_name is not None:
        yield from _own_name_findings(node, host, host.own_name)
    for one in host.moved_listeners:
        consequence = (
            f"The process listens at {few(one.listens)}. After its next start, other hosts cannot connect"
            if one.listens
            else "The host does not have this address. The next start cannot bind to it and ends"
        )
        fact = (
            f"the address {one.address}, which host {host.name} has lost"
            if one.name == one.address
            else f"the name {one.name}, which is {one.address} on host {host.name}"
        )
        yield LISTENER_MOVED.found(
            f"{subject}, {one.name}",
            f"`listeners` of node {node.node_id} has {fact}. {consequence}, also after a rollback.",
            f"Give host {host.name} the address {one.address} again (`ip address`), or write another one into "
            "`listeners`. Then plan again."
            if one.name == one.address
            else f"Let host {host.name} resolve {one.name} to the address at which the process listens (`ss -Htln` "
            "shows it), or write this address into `listeners`. Then plan again.",
        )
    if host.unresolved_controllers:
        names = few(host.unresolved_controllers)
        yield CONTROLLER_UNRESOLVED.found(
            f"{subject}, controllers",
            f"Host {host.name} cannot resolve {names} in controller.quorum.voters or "
            f"controller.quorum.bootstrap.servers of node {node.node_id}. The next start "
            + ("does not connect to these controllers." if host.resolves_controllers else "finds no controller."),
            f"Let host {host.name} resolve these names, for example by lines in /etc/hosts, or correct the setting.",
            severity=WARNING if host.resolves_controllers else BLOCKER,
            covers=host.unresolved_controllers,
        )
    for pattern in host.empty_patterns:
        yield START_PATH_MISSING.found(
            f"{subject}, {pattern}",
            f"{on} reads EnvironmentFile={pattern}, and no file on the host matches it now. systemd does not start "
            f"node {node.node_id} then, also after a rollback.",
            f"Put the files back that node {node.node_id} needs. If it needs none, write `EnvironmentFile=-{pattern}` "
            f"into the unit (`systemctl edit --full {host.unit}`), and run `systemctl daemon-reload` as root.",
            severity=BLOCKER,
        )
    if host.process_differences:
        yield NEXT_PROCESS_RESTRICTED.found(
            f"{subject}, limits",
            f"systemd starts the next process of node {node.node_id} on host {host.name} with other limits and "
            f"restrictions than the one that runs: {'; '.join(host.process_differences)}.",
            f"Compare `systemctl cat {host.unit}` with what the process had at its start, and put back what was "
            "removed. If the node can start and serve with these settings, no action is needed: the approval of the "
            "plan accepts them.",
            covers=host.process_differences,
        )
    if host.newer_settings:
        shown = [hide_credentials(one) for one in host.newer_settings]
        yield UNIT_SETTINGS_UNKNOWN.found(
            f"{subject}, changed settings of {host.unit}",
            f"Files of {on} were changed after node {node.node_id} was started, with the settings "
            f"{few_quoted(shown)}. The process does not show what they do to a start.",
            f"Compare the files (`systemctl cat {host.unit}`) with what they were. If no change can keep Java from "
            "starting, no action is needed: the approval of the plan accepts them.",
            covers=shown,
        )
    if host.unknown_settings:
        shown = [hide_credentials(one) for one in host.unknown_settings]
        yield UNIT_SETTINGS_UNKNOWN.found(
            f"{subject}, {host.unit}",
            f"{on} has settings that no check reads: {few_quoted(shown)}. They can "
            f"decide whether and with what systemd starts node {node.node_id} after its stop.",
            "Read them in systemd.unit(5), systemd.service(5) and systemd.exec(5). If none keeps the next start from "
            "being as the last one, no action is needed: the approval of the plan accepts them.",
            covers=shown,
        )


def _own_name_findings(node: NodeSpec, host: HostState, own: OwnName) -> Iterator[Finding]:
    subject = f"node {node.node_id}, {own.name}"
    fact = f"A listener of node {node.node_id} has no host, so Kafka takes the name of host {host.name} at each start"
    write = "Or write the name that clients use into `advertised.listeners`. Then plan again."
    if not own.canonical:
        yield LISTENER_UNRESOLVED.found(
            subject,
            f"{fact}. The host cannot resolve its own name {own.name} now: the next start ends with "
            "UnknownHostException, also after a rollback.",
            f"Let host {host.name} resolve {own.name}, for example by a line in /etc/hosts. {write}",
        )
    elif host.registered_as and host.registered_as != own.canonical.rstrip(".").lower():
        yield OWN_NAME_CHANGED.found(
            subject,
            f"{fact}. That is {own.canonical} now, and the cluster has {host.registered_as} for the node. After the "
            f"next start, also after a rollback, clients and other nodes get {own.canonical}.",
            f"Give host {host.name} its old name again (`hostnamectl set-hostname`, /etc/hosts, DNS). {write}",
        )
