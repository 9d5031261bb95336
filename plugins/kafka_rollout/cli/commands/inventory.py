"""The inventory of a cluster: write it from a running cluster, print the rights that a run needs, check that a run can
observe and manage every node."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_rollout.base.errors import INCOMPLETE, RefusedError, UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.wording import count
from kafka_rollout.base.wording import nodes as nodes_of
from kafka_rollout.cli import show
from kafka_rollout.cli.options import AsJson, ClusterName, CommandConfig, open_ports
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.model.rights import RIGHTS, RightsOf, grant_commands
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.preparation.node_checks import CheckedNode, check_inventory, read_configurations, readiness
from kafka_rollout.releases.facts import Release

if TYPE_CHECKING:
    from kafka_rollout.nodes.runtimes.hosts.rights import NodeDirectories

_HOSTS, _KAFKA = "Hosts", "Kafka"


class RightsFor(StrEnum):
    """A part of the rights: those on the hosts, those of all users in Kafka, or of one."""

    HOSTS = "hosts"
    KAFKA = "kafka"
    READ_ONLY = RightsOf.READ_ONLY.value
    CHANGES = RightsOf.CHANGES.value
    PINNING = RightsOf.PINNING.value
    TRAFFIC = RightsOf.TRAFFIC.value
    CONTROLLERS = RightsOf.CONTROLLERS.value


app = typer.Typer(help=__doc__, no_args_is_help=True)


@app.command("init")
def inventory_init(
    bootstrap_server: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address of any broker.")],
    name: Annotated[
        str | None,
        typer.Option(help="Name of the cluster; default: kafka- and the start of the cluster id."),
    ] = None,
    as_json: AsJson = False,
    command_config: CommandConfig = None,
) -> None:
    """Write the inventory of a running cluster: its nodes with their roles, addresses and racks, for runtime none.

    Values that cannot be discovered are comments with a question. An existing file is never changed. Prints the path of
    the file. Exit code 5 if a node of the cluster did not respond, or if the nodes could not be listed completely.
    """
    from kafka_rollout.client.security.credentials import read_security_file
    from kafka_rollout.clusters.discovery import discover_inventory

    settings = Settings.from_environment()
    security = None if command_config is None else read_security_file(command_config)
    path, spec, found = discover_inventory(bootstrap_server, name, security, settings)
    nodes = f"{count(len(spec.brokers), 'broker')} and {count(len(spec.controllers), 'controller')}"
    check = f"kafka-rollout inventory check --cluster {spec.name}"
    for problem in found.problems:
        show.say(f"Incomplete: {problem}", show.err)
    show.say(f"Wrote {nodes}. Answer the questions in the file, then run `{check}`.", show.err)
    show.print_json({"cluster": spec.name, "file": path, "incomplete": found.problems}) if as_json else show.say(path)
    if found.problems:
        raise typer.Exit(INCOMPLETE)


@app.command("check")
def inventory_check(
    cluster: ClusterName,
    to: Annotated[
        str | None, typer.Option("--to", help="Release that must be on every host, for example 4.3.1.")
    ] = None,
    as_json: AsJson = False,
    command_config: CommandConfig = None,
) -> None:
    """Check hosts, host keys, rights, units, Java and listeners of every node, and the rights of a run in Kafka.

    Exit code 3 with blockers. Read-only. With --to, hosts that install Kafka from a package load its packages.
    """
    with open_ports(cluster, None, command_config) as (ports, _, _security):
        nodes, verdict = check_inventory(ports, [] if to is None else [Release.parse(to)])
    ready = readiness(ports.cluster, nodes, verdict)
    if as_json:
        show.print_json({"ok": verdict.ok, "ready": ready, "nodes": nodes, "findings": verdict.findings})
    else:
        show.print_table(
            ("Node", "Host", "Unit", "Process", "Running", "Installed", "Java"),
            [_row(ports.cluster, node) for node in nodes],
        )
        show.print_findings(verdict.findings)
        for command in ready.commands:
            show.say(f"All missing rights: {command}")
        show.say(ready.sentence)
    if not verdict.ok:
        raise typer.Exit(RefusedError.exit_code)


@app.command("rights")
def inventory_rights(
    cluster: Annotated[str | None, typer.Option("--cluster", "-c", help="Name in the inventory (see `fleet`).")] = None,
    of: Annotated[
        list[RightsFor] | None,
        typer.Option(
            "--of",
            metavar="PART",
            help="hosts; kafka, for all users in Kafka; or one of them: read-only, changes, pinning, traffic or "
            "controllers. Repeatable. Default: all.",
        ),
    ] = None,
    user: Annotated[str, typer.Option(help="The SSH user of the hosts.", rich_help_panel=_HOSTS)] = "rollout",
    host: Annotated[
        str | None, typer.Option(help="Print the file of this host, and nothing else.", rich_help_panel=_HOSTS)
    ] = None,
    log_dir: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DIR",
            help="One of log.dirs, the same on every node; repeatable. Contacts no host. Default: those of each node.",
            rich_help_panel=_HOSTS,
        ),
    ] = None,
    metadata_log_dir: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="metadata.log.dir of the nodes; default: the first --log-dir.",
            rich_help_panel=_HOSTS,
        ),
    ] = None,
    principal: Annotated[
        str,
        typer.Option(help="The user in Kafka, for example User:rollout or User:CN=rollout.", rich_help_panel=_KAFKA),
    ] = "User:NAME",
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Address for the commands, instead of a cluster.", rich_help_panel=_KAFKA
        ),
    ] = None,
    as_json: AsJson = False,
    command_config: CommandConfig = None,
) -> None:
    """Print the rights that a run needs, and no others: the sudoers file of each host, and kafka-acls.sh commands.

    Changes nothing. Save the file of a host as /etc/sudoers.d/zz-kafka-rollout there, with mode 0440, and check it with
    visudo -c. It needs sudo 1.9.10 or later. A comment names the hosts of each file. Without --log-dir, the command
    reads the directories of each node from its configuration file over SSH, or from the node itself while sudo does not
    permit to read the file.

    The users in Kafka: `read-only` observes, plans and scans. `changes` upgrades, downgrades and changes features.
    `pinning` is for --pin-min-insync-replicas, in addition. `traffic` produces the test traffic. `controllers` lists
    the controllers and reads their settings. All commands are for the same principal, so none grants what an earlier
    one does.
    """
    if (cluster is None) == (bootstrap_server is None):
        raise UserError(
            "The rights need a cluster of the inventory, or the address of a broker for those in Kafka.",
            remedy="Add --cluster NAME or --bootstrap-server HOST:PORT.",
        )
    spec = None if cluster is None else get_cluster(cluster)
    wanted = set(of or ([RightsFor.HOSTS] if host else RightsFor))
    if host is not None and wanted != {RightsFor.HOSTS}:
        raise UserError("--host prints the file of one host, and nothing else.", remedy="Remove --of.")
    files: dict[str, list[str]] = {}
    if spec is None:
        if (of or host) and RightsFor.HOSTS in wanted:
            raise UserError("The file of a host needs the inventory of its cluster.", remedy="Add --cluster NAME.")
    elif RightsFor.HOSTS in wanted and (of or host or spec.runtime == "ssh_service"):
        files = _sudoers_files(spec, user, host, log_dir, metadata_log_dir, command_config)
    servers = spec.bootstrap_servers if spec is not None else str(bootstrap_server)
    commands = _commands_in_kafka(wanted, servers, principal)
    if as_json:
        listed = [{"hosts": hosts, "text": text} for text, hosts in files.items()]
        show.print_json({"cluster": cluster, "files": listed, "principal": principal, "commands": commands})
        return
    for text, hosts in files.items():
        typer.echo(f"# {', '.join(hosts)}\n{text}")
    for one, lines in commands.items():
        typer.echo(f"# {one.value}: {one.users}" + ("" if lines else " (the commands above grant its rights)"))
        for line in lines:
            typer.echo(line)


def _sudoers_files(
    spec: ClusterSpec,
    user: str,
    host: str | None,
    log_dir: list[str] | None,
    metadata_log_dir: str | None,
    command_config: Path | None,
) -> dict[str, list[str]]:
    """Return each different sudoers file → its hosts. Raises UserError for wrong values, RefusedError for unknown
    directories."""
    from kafka_rollout.clusters.sudoers import list_sudoers_files, refuse_without_hosts, same_directories

    refuse_without_hosts(spec)
    if metadata_log_dir is not None and not log_dir:
        raise UserError("--metadata-log-dir is only used with --log-dir.", remedy="Add --log-dir, or remove it.")
    if log_dir:
        given = [one.strip() for text in log_dir for one in text.split(",")]
        directories = same_directories(spec, given, metadata_log_dir)
    else:
        directories = _read_directories(spec.name, command_config)
    files = list_sudoers_files(spec, user, directories)
    if host is not None:
        files = {text: [host] for text, hosts in files.items() if host in hosts}
    if not files:
        raise UserError(f"Cluster {spec.name} has no host {host}.", remedy="Set --host to a host of its inventory.")
    return files


def _commands_in_kafka(wanted: set[RightsFor], servers: str, principal: str) -> dict[RightsOf, tuple[str, ...]]:
    """Return the commands of each wanted user. None grants what an earlier one does."""
    granted: set[tuple[str, str, str]] = set()
    commands: dict[RightsOf, tuple[str, ...]] = {}
    for one in RightsOf:
        if RightsFor.KAFKA not in wanted and RightsFor(one.value) not in wanted:
            continue
        new = [r for r in RIGHTS[one] if (r.operation, r.resource, r.name) not in granted]
        granted |= {(r.operation, r.resource, r.name) for r in new}
        commands[one] = grant_commands(new, servers, principal)
    return commands


def _read_directories(cluster: str, command_config: Path | None) -> dict[int, NodeDirectories]:
    """Return the directories of each node. Raises RefusedError for nodes whose directories are unknown."""
    from kafka_rollout.clusters.sudoers import directories_of

    with open_ports(cluster, None, command_config) as (ports, _, _security):
        configs, problems = read_configurations(ports)
    found = {node_id: directories_of(config) for node_id, config in configs.items()}
    problems |= {
        node_id: "Its configuration has no log.dirs as paths." for node_id, one in found.items() if one is None
    }
    if problems:
        first = next(iter(problems.values()))
        raise RefusedError(
            f"The log.dirs of {nodes_of(problems)} are unknown. {first}",
            remedy="Give those of all nodes with --log-dir. For the rights in Kafka alone, add --of kafka.",
        )
    return {node_id: one for node_id, one in found.items() if one is not None}


def _row(cluster: ClusterSpec, checked: CheckedNode) -> tuple[object, ...]:
    service, process = checked.node.service, checked.process
    return (
        f"{checked.node.name} ({checked.node.node_id})",
        service.host if service else "this machine" if cluster.manages_nodes else "not observable",
        service.unit if service else "–",
        process.pid if process and process.pid else "–",
        process.running if process and process.running else "–",
        process.installed if process and process.installed else "–",
        checked.java or "–",
    )
