"""The inventory file of a discovered cluster. A value that cannot be discovered is a commented question."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.outside_text import escape_invisible
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.discovery.cluster import DiscoveredCluster, discover_cluster
from kafka_rollout.clusters.inventory import NAME, list_readable_clusters, load_cluster
from kafka_rollout.kafka.client.security.client_security import ClientSecurity
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.releases.facts import Catalogue
from kafka_rollout.releases.reported import identify_by_levels

_SERVICE = """\
# service:                              # How are the nodes installed on their hosts? These are the defaults.
#   unit: kafka
#   user: kafka
#   installation: /opt/kafka_2.13-{release}
#   symlink: /opt/kafka                   # Or does a package install Kafka? Then use `package` (docs/packages.md).
#   configuration_file: /etc/kafka/server.properties
"""


def discover_inventory(
    bootstrap: str, name: str | None, security: ClientSecurity | None, settings: Settings
) -> tuple[Path, ClusterSpec]:
    """Write the inventory of a running cluster to the folder of the inventories. `bootstrap`: `host:port` of a broker.

    `name`: of the cluster; None: one by its id. Raises UserError if the folder has the cluster or the file already.
    """
    existing, _ = list_readable_clusters(settings)
    if name is not None:
        _refuse_name(name, existing)
    found = discover_cluster(bootstrap, security or ClientSecurity())
    name = name or default_name(found.cluster_id)
    _refuse_name(name, existing)
    return write_inventory(
        found, name, settings.clusters, get_catalogue(settings), bootstrap=bootstrap, secured=security is not None
    )


def _refuse_name(name: str, existing: Mapping[str, ClusterSpec]) -> None:
    _refuse_invalid_name(name)
    if name in existing:
        raise UserError(f"The inventory has a cluster {name} already.", remedy="Choose another name with --name.")


def _refuse_invalid_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise UserError(f"'{name}' is not a name of a cluster.", remedy="Use lower-case letters, digits, - and _.")


def default_name(cluster_id: str) -> str:
    """Return a name of the inventory for a cluster without one."""
    return f"kafka-{re.sub('[^a-z0-9]', '', cluster_id.lower())[:8]}"


def write_inventory(
    found: DiscoveredCluster, name: str, folder: Path, catalogue: Catalogue, *, bootstrap: str, secured: bool
) -> tuple[Path, ClusterSpec]:
    """Write the file of the cluster into the folder of the inventories; returns it as the reader reads it.

    Raises UserError if the file exists, and for an invalid name.
    """
    _refuse_invalid_name(name)
    path = folder / f"{name}.yaml"
    draft = folder / f".{name}.yaml.draft"
    text = "".join(_lines(found, name, catalogue, bootstrap, secured))
    try:
        draft.write_text(text, encoding="utf-8")
        spec = load_cluster(draft)
        os.link(draft, path)  # fails if the file exists, which a rename would replace
    except FileExistsError:
        raise UserError(
            f"The inventory {path} exists and was not changed.", remedy="Choose another name with --name."
        ) from None
    except OSError as error:
        raise UserError(
            f"The inventory {path} cannot be written: {error.strerror}.",
            remedy="Make its folder writable, or set KAFKA_ROLLOUT_CLUSTERS to another folder.",
        ) from None
    finally:
        draft.unlink(missing_ok=True)
    return path, spec


def _lines(found: DiscoveredCluster, name: str, catalogue: Catalogue, bootstrap: str, secured: bool) -> Iterator[str]:
    origin = _one_line(f"From broker {bootstrap}, cluster id {found.cluster_id}, by `kafka-rollout inventory init`.")
    yield f"# {origin}\n"
    yield "# A line with a question has a value that cannot be discovered: answer it and remove the first '# '.\n"
    yield f"name: {name}\n"
    yield "runtime: none                           # Can SSH reach the hosts? Then use ssh_service (docs/hosts.md).\n"
    yield _SERVICE
    yield "# ssh_connection_id: kafka-hosts        # Which Airflow Connection reaches the hosts?\n"
    marker = "" if not secured else "          # The listeners are secured."
    yield f"# connection_id: {name}                # Which Airflow Connection has their settings?{marker}\n"
    yield "# owner: kafka-platform                 # Who owns the DAGs?\n"
    yield "# approvers: [anna, ben]                # Which users of Airflow can approve changes?\n"
    line = identify_by_levels(found.supported, catalogue, {})
    if line.release is not None:
        mapping = f'{{"{line.text}": "{line.neighbours[-1]}"}}'
        yield f"# apache_releases: {mapping}   # Which patch release of {line.apache} runs?\n"
    yield "nodes:\n"
    for node in found.nodes:
        yield from _node(node, found)
    for node_id, why in found.hidden.items():
        yield f"# Controller {node_id} is a voter: {_comment(why)} Can this machine reach its listener?\n"
        if all(node.node_id != node_id for node in found.nodes):
            yield f"# - id: {node_id}\n#   name: controller-{node_id}\n#   roles: [controller]\n"
            yield "#   controller_address: HOST:PORT\n"


def _node(node: NodeSpec, found: DiscoveredCluster) -> Iterator[str]:
    known = {
        "id": node.node_id,
        "name": node.name,
        "roles": [role.value for role in Role if role in node.roles],
        "broker_address": node.broker_address,
        "controller_address": node.controller_address,
        "rack": node.rack,
    }
    known = {key: value for key, value in known.items() if value is not None}
    if why := found.silent.get(node.node_id):
        yield f"# {_comment(why)} Is its address correct?\n"
    text: str = yaml.safe_dump([known], sort_keys=False, default_flow_style=None, width=1000)
    yield text
    host = _one_line((node.broker_address or node.controller_address or "").rpartition(":")[0])
    yield f"  # host: {host.strip('[]')}   # Is this its host for SSH?\n"
    yield f"  # prometheus_url: http://{host}:7071/metrics   # Which port has the Prometheus exporter?\n"
    yield f"  # jolokia_url: http://{host}:8778/jolokia   # Which port has the Jolokia agent?\n"


def _one_line(text: str) -> str:
    """Text of the cluster for a comment: a line break in it would begin a line of the inventory."""
    return escape_invisible(" ".join(text.split()))


def _comment(text: str) -> str:
    """One sentence on one line."""
    return f"{_one_line(text).rstrip('.')}."
