"""Settings that only the target has and that take effect on a node although its file does not name them.

They are derived: the names and defaults of both releases are those of their own classes, and the area of a setting is
in its name. An area counts if the node uses it. The documentation is that of the target's own classes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kafka_rollout.base.findings import INFO, WARNING, Check, Examined, Finding, FindingCode, Need
from kafka_rollout.base.wording import nodes
from kafka_rollout.model.configs import NodeConfigs, is_reference
from kafka_rollout.model.listeners import find_listeners
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import GROUP_VERSION, SHARE_VERSION, Catalogue, Release

CONFIG_NEW_SETTING = FindingCode(
    "CONFIG-NEW-SETTING",
    (INFO, WARNING),
    "A setting that only the target has takes effect on a node with its default. A warning if it is a setting of "
    "authentication or encryption, or if it chooses a class.",
)
NEW_SETTINGS_CHECK = Check(
    "new-settings",
    "New settings of the target",
    "releases.md#changed-defaults-of-broker-settings",
    (CONFIG_NEW_SETTING,),
    needs=(Need.CONFIGS, Need.FACTS),
    examines=Examined.CONFIGS,
)
_STREAMS_VERSION = "streams.version"
# Area by the beginning of the name → the feature that uses it.
_FEATURES: Mapping[str, str] = {
    "group.share.": SHARE_VERSION,
    "share.": SHARE_VERSION,
    "errors.deadletterqueue.": SHARE_VERSION,
    "group.streams.": _STREAMS_VERSION,
    "group.consumer.": GROUP_VERSION,
}
_MECHANISMS: Mapping[str, str] = {"sasl.oauthbearer.": "OAUTHBEARER", "sasl.kerberos.": "GSSAPI"}
_TIERED, _TIERED_STORAGE = (
    ("remote.", "log.remote.", "log.local.", "follower.fetch."),
    "remote.log.storage.system.enable",
)
_TOKENS = ("delegation.token.master.key", "delegation.token.secret.key")
_BROKERS_ONLY = (*_FEATURES, *_TIERED, "group.", "log.", "message.", "replica.", "transaction.", "offsets.", "fetch.")
_SECURITY = ("sasl.", "ssl.", "security.", "authorizer.", "principal.", "delegation.", "connections.")
_NOT_DOCUMENTED = ("internal.", "unstable.")
_KAFKAS_CLASS = "org.apache.kafka."
_SENTENCE = re.compile(r"(?<=[.])\s+(?=[A-Z<])")
_TAG = re.compile(r"<[^>]+>")
_LONGEST = 220

NewSettings = Mapping[str, Sequence[int]]
"""Setting → ids of the nodes on which it takes effect."""


def find_new_settings(
    cluster: ClusterSpec,
    catalogue: Catalogue,
    path: Sequence[Release],
    configs: NodeConfigs,
    finalized: Mapping[str, int],
) -> NewSettings:
    """Return the settings that only the last release of `path` has, with a default, and whose area a node uses.

    `path`: source release first. `configs`: files of the nodes on the last release. Empty if the settings of a release
    are unknown.
    """
    old, new = catalogue.get(path[0]), catalogue.get(path[-1])
    if any({"config_names", "config_defaults"} & facts.gaps.keys() for facts in (old, new)):
        return {}
    found: defaultdict[str, list[int]] = defaultdict(list)
    names = sorted(name for name in new.config_names - old.config_names if new.config_defaults.get(name))
    for node in cluster.nodes:
        config = configs.get(node.node_id)
        if config is None:
            continue  # not observable, which has its own finding
        for name in names:
            is_of_node = node.is_broker or not name.startswith(_BROKERS_ONLY)
            if is_of_node and not _is_set(config, name) and uses(config, finalized, name):
                found[name].append(node.node_id)
    return dict(found)


def uses(config: Mapping[str, str], finalized: Mapping[str, int], name: str) -> bool:
    """Return whether a node with this configuration uses the area of a setting. What is unknown counts as used."""
    if name.startswith(_NOT_DOCUMENTED):
        return False
    for prefix, feature in _FEATURES.items():
        if name.startswith(prefix):
            return not finalized or finalized.get(feature, 0) > 0
    if name.startswith(_TIERED):
        value = config.get(_TIERED_STORAGE, "false")
        return is_reference(value) or value.strip().lower() == "true"
    if name.startswith("delegation."):
        return any(config.get(key) for key in _TOKENS)
    if not name.startswith(("sasl.", "ssl.")):
        return True
    found = find_listeners(config)
    if found.unknown:
        return True
    protocols = {*found.protocols, *found.logs_in}
    if name.startswith("ssl."):
        return any(protocol.endswith("SSL") for protocol in protocols)
    mechanism = next((one for prefix, one in _MECHANISMS.items() if name.startswith(prefix)), "")
    own = {value.upper() for key, value in config.items() if key.endswith(".protocol") and key.startswith("sasl.mech")}
    mechanisms = {*found.mechanisms, *own}
    has_sasl = any(protocol.startswith("SASL") for protocol in protocols)
    return has_sasl and (not mechanism or mechanism in mechanisms)


def new_setting_findings(
    catalogue: Catalogue, source: Release, target: Release, found: NewSettings, documentation: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield a warning for each security setting and class, and one finding for all others."""
    defaults = catalogue.get(target).config_defaults
    others = {}
    for name, ids in found.items():
        if not (name.startswith(_SECURITY) or defaults[name].startswith(_KAFKAS_CLASS)):
            others[name] = ids
            continue
        yield CONFIG_NEW_SETTING.found(
            f"configuration {name}",
            f"Kafka {target} has this setting and {source} does not. It takes effect on {nodes(ids)} with its default "
            f"{defaults[name]}.{_said(documentation.get(name, ''))}",
            f'Check the default. To choose another value, add `{name}: "…"` to release_overrides of {target} in the '
            "inventory.",
            severity=WARNING,
        )
    if others:
        yield CONFIG_NEW_SETTING.found(
            "configuration, other new settings",
            f"Kafka {target} has settings that {source} does not, and nodes use their defaults: "
            + "; ".join(f"{name} {defaults[name]} ({nodes(ids)})" for name, ids in others.items())
            + ".",
            f"No action needed, unless a value does not fit: then add it to release_overrides of {target}.",
        )


def names_to_explain(catalogue: Catalogue, target: Release, found: Iterable[str]) -> tuple[str, ...]:
    """Return the settings whose documentation a finding shows."""
    defaults = catalogue.get(target).config_defaults
    return tuple(name for name in found if name.startswith(_SECURITY) or defaults[name].startswith(_KAFKAS_CLASS))


def _is_set(config: Mapping[str, str], name: str) -> bool:
    return name in config or any(key.endswith(f".{name}") for key in config)


def _said(documentation: str) -> str:
    """Return the first sentences of a setting's documentation, as text."""
    text = " ".join(_TAG.sub("", documentation).split())
    shown = ""
    for sentence in _SENTENCE.split(text):
        if shown and len(shown) + len(sentence) > _LONGEST:
            break
        shown = f"{shown} {sentence}"
    return f" Kafka's documentation: {shown.strip()}" if shown.strip() else ""
