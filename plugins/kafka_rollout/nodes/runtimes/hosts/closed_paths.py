"""What the scripts of a package have closed to the user of the unit: they can change owners and modes, after the stop.

Asked before the installation, and between it and the start, so that an error names the file and the command, and not
a process that is gone. Nothing needs a right.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from kafka_rollout.base.errors import FatalError
from kafka_rollout.model.configs import provider_files
from kafka_rollout.model.file_access import FileAccess, Use
from kafka_rollout.model.host_state import PlaceState
from kafka_rollout.model.log_directories import log_directories
from kafka_rollout.model.starts import named_files
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, service_of
from kafka_rollout.nodes.runtimes.hosts.option_sources import UnitOptions
from kafka_rollout.nodes.runtimes.hosts.start_writes import UnitSandbox, read_sandbox
from kafka_rollout.nodes.runtimes.hosts.user_access import Lookup, follow, read_access
from kafka_rollout.releases.facts import Release

_SEEN = (PlaceState.FILE, PlaceState.FOLDER, PlaceState.HIDDEN)


def uses_of(commands: HostCommands, node: NodeSpec, config: Mapping[str, str], unit: UnitOptions) -> dict[str, Use]:
    """Return what the user of the unit does with what the start needs: the files of the configuration, the log
    directories and the folder of the log. What systemd or a command of root opens before the start is left out.
    `config`: of the node."""
    return _uses(node, config, read_sandbox(commands, node, unit))


def _uses(node: NodeSpec, config: Mapping[str, str], sandbox: UnitSandbox) -> dict[str, Use]:
    service = service_of(node)
    uses = dict.fromkeys(log_directories(config), Use.CREATE)
    if service.log_file is not None:
        uses[posixpath.dirname(service.log_file)] = Use.CREATE
    uses[service.configuration_file] = Use.READ
    named = (*named_files(config, ()).values(), *(path for _, path in provider_files(config)))
    uses |= dict.fromkeys(named, Use.READ)
    return {
        path: use
        for path, use in uses.items()
        if path.startswith("/") and not sandbox.prepares(posixpath.normpath(path))
    }


def read_closed_paths(
    commands: HostCommands, node: NodeSpec, config: Mapping[str, str], unit: UnitOptions
) -> Mapping[str, FileAccess]:
    """Return what the user of the unit cannot use of `uses_of`, by place."""
    sandbox = read_sandbox(commands, node, unit)
    wanted = _uses(node, config, sandbox)
    found = {
        path: one
        for path, one in follow(commands, node, wanted).items()
        if one.state in _SEEN and not sandbox.prepares(one.place)
    }
    asked = [Lookup(one.way, one.place, wanted[path]) for path, one in found.items()]
    return {one.place: one for one in read_access(commands, node, asked) if one.refused}


def refuse_closed_paths(
    node: NodeSpec, release: Release, before: Mapping[str, FileAccess], after: Mapping[str, FileAccess]
) -> None:
    """Raise FatalError for what the user could use before the package was installed, and cannot use now. A node can
    run without what was closed before, for example where root opens its log. So a repeated step starts it."""
    service = service_of(node)
    closed = {place: one for place, one in after.items() if place not in before}
    if closed:
        of_user = next(iter(closed.values())).user
        raise FatalError(
            f"The package of Kafka {release} is installed on host {service.host}, but user {of_user} of the unit "
            f"{', and '.join(one.refused for one in closed.values())}, and could before. A script of the package can "
            f"have changed the owner or the mode. Node {node.name} was not started.",
            remedy=f"Run {' and '.join(f'`{_opens(one)}`' for one in closed.values())} there as root, or give the "
            "owner and the mode of before back. Then repeat the step.",
        )


def _opens(access: FileAccess) -> str:
    """Return the command that opens the file or the folder to the user alone."""
    rights = "x" if "cannot enter" in access.refused else "rwx" if "cannot create" in access.refused else "r"
    return f"setfacl -m u:{access.user}:{rights} {access.place}"
