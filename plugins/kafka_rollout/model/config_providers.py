"""References to config providers (KIP-297) in the configuration of a node.

Only the node resolves them: the class, the files and the environment of a provider are those of its host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kafka_rollout.model.topology import NodeSpec, Role

CONFIG_PROVIDERS = "config.providers"
_REFERENCE = re.compile(r"\$\{[^}]*:")  # every value that ConfigTransformer.DEFAULT_PATTERN matches, and some more


def is_reference(value: str) -> bool:
    """Return whether a value contains `${provider:`, so that the value of the setting is unknown."""
    return _REFERENCE.search(value) is not None


def is_provider_setting(name: str) -> bool:
    """Return whether a setting configures the providers themselves."""
    return name == CONFIG_PROVIDERS or name.startswith(f"{CONFIG_PROVIDERS}.")


def unresolved_settings(config: Mapping[str, str]) -> tuple[str, ...]:
    """Return the settings whose values come from a config provider, sorted; without the providers' own settings."""
    return tuple(
        sorted(name for name, value in config.items() if is_reference(value) and not is_provider_setting(name))
    )


def literal_settings(config: Mapping[str, str]) -> dict[str, str]:
    """Return the settings whose values are in the file itself, without those of the config providers."""
    return {name: value for name, value in config.items() if not is_reference(value) and not is_provider_setting(name)}


def with_inventory_values(node: NodeSpec, config: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration with the node's id and roles of the inventory where a config provider has them."""
    roles = ",".join(role.value for role in Role if role in node.roles)
    known = {"node.id": str(node.node_id), "process.roles": roles}
    return {name: known[name] if name in known and is_reference(value) else value for name, value in config.items()}


def known_number(config: Mapping[str, str], name: str, default: int) -> int | None:
    """Return the number of a setting, `default` if it is not set; None if it is unknown or not a number."""
    try:
        return int(config.get(name, default))
    except ValueError:
        return None
