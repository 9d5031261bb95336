"""The inventory of a cluster: write it from a running cluster, print the sudoers files of its hosts, check that a run
can observe and manage every node."""

from __future__ import annotations

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


@app.command("sudoers")
def inventory_sudoers(
    cluster: ClusterName,
    log_dir: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DIR",
            help="One of log.dirs, the same on every node; repeatable. Contacts no host. Default: those of each node.",
        ),
    ] = None,
    metadata_log_dir: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="metadata.log.dir of the nodes; default: the first --log-dir."),
    ] = None,
    user: Annotated[str, typer.Option(help="The SSH user of the hosts.")] = "rollout",
    host: Annotated[str | None, typer.Option(help="Print the file of this host; default: of all hosts.")] = None,
    as_json: AsJson = False,
    command_config: CommandConfig = None,
) -> None:
    """Print the sudoers file of each host: the commands that a run needs, and no others. Read-only.

    Without --log-dir, the command reads the directories of each node from its configuration file over SSH, or from the
    node itself while sudo does not permit to read the file. A comment names the hosts of each file. Save the file of a
    host as /etc/sudoers.d/zz-kafka-rollout there, with mode 0440, and check it with visudo -c. It needs sudo 1.9.10 or
    later.
    """
    from kafka_rollout.clusters.sudoers import list_sudoers_files, refuse_without_hosts, same_directories

    spec = get_cluster(cluster)
    refuse_without_hosts(spec)
    if metadata_log_dir is not None and not log_dir:
        raise UserError("--metadata-log-dir is only used with --log-dir.", remedy="Add --log-dir, or remove it.")
    if log_dir:
        given = [one.strip() for text in log_dir for one in text.split(",")]
        directories = same_directories(spec, given, metadata_log_dir)
    else:
        directories = _read_directories(cluster, command_config)
    files = list_sudoers_files(spec, user, directories)
    if host is not None:
        files = {text: [host] for text, hosts in files.items() if host in hosts}
    if not files:
        raise UserError(f"Cluster {cluster} has no host {host}.", remedy="Set --host to a host of its inventory.")
    if as_json:
        show.print_json(
            {"cluster": cluster, "files": [{"hosts": hosts, "text": text} for text, hosts in files.items()]}
        )
        return
    for text, hosts in files.items():
        typer.echo(f"# {', '.join(hosts)}\n{text}")


@app.command("acls")
def inventory_acls(
    cluster: Annotated[str | None, typer.Option("--cluster", "-c", help="Name in the inventory (see `fleet`).")] = None,
    bootstrap_server: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Address for the commands, instead of a cluster.")
    ] = None,
    of: Annotated[
        list[RightsOf] | None, typer.Option("--of", help="Only the rights of this user; repeatable. Default: all.")
    ] = None,
    principal: Annotated[
        str, typer.Option(help="The user in Kafka, for example User:rollout or User:CN=rollout.")
    ] = "User:NAME",
    as_json: AsJson = False,
) -> None:
    """Print the kafka-acls.sh commands that grant each user of this tool its rights in Kafka. Contacts no cluster.

    `read-only` observes, plans and scans. `changes` upgrades, downgrades and changes features. `pinning` is for
    --pin-min-insync-replicas, in addition. `traffic` produces the test traffic. `controllers` lists the controllers and
    reads their settings. All commands are for the same principal, so none grants what an earlier one does.
    """
    if (cluster is None) == (bootstrap_server is None):
        raise UserError(
            "The commands need a cluster of the inventory or the address of a broker.",
            remedy="Add --cluster NAME or --bootstrap-server HOST:PORT.",
        )
    servers = get_cluster(cluster).bootstrap_servers if cluster else str(bootstrap_server)
    granted: set[tuple[str, str, str]] = set()
    commands: dict[RightsOf, tuple[str, ...]] = {}
    for one in of or list(RightsOf):
        new = [r for r in RIGHTS[one] if (r.operation, r.resource, r.name) not in granted]
        granted |= {(r.operation, r.resource, r.name) for r in new}
        commands[one] = grant_commands(new, servers, principal)
    if as_json:
        show.print_json({"cluster": cluster, "principal": principal, "commands": commands})
        return
    for one, lines in commands.items():
        typer.echo(f"# {one.value}: {one.users}" + ("" if lines else " (the commands above grant its rights)"))
        for line in lines:
            typer.echo(line)


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
            remedy="Give those of all nodes with --log-dir.",
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
