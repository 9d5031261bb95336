"""Findings about wrong credentials that the classes of a release accept for a listener of a node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from kafka_rollout.base.findings import BLOCKER, INFO, WARNING, Check, Examined, Finding, FindingCode, Need
from kafka_rollout.base.wording import few, nodes
from kafka_rollout.model.listeners import find_listeners
from kafka_rollout.model.probes import Probe, ProbeOutcome
from kafka_rollout.releases.facts import Release

Probes = Mapping[Release, Mapping[int, Iterable[Probe]]]
"""Release → node id → its probes."""

_OAUTH = "OAUTHBEARER"
_VALIDATOR = "sasl.oauthbearer.jwt.validator.class"
_BROKER_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator"
_VALIDATOR_SINCE = Release(4, 1, 0)

OAUTH_TOKENS_UNVERIFIED = FindingCode(
    "OAUTH-TOKENS-UNVERIFIED",
    (BLOCKER, WARNING),
    "A release of the path accepts forged OAuth tokens at a listener. A warning if the source release does, too.",
)
WRONG_PASSWORD_ACCEPTED = FindingCode(
    "WRONG-PASSWORD-ACCEPTED",
    (BLOCKER, WARNING),
    "A release of the path accepts a wrong password at a listener. A warning if the source release does, too.",
    "Choose another release, and report this.",
)
AUTHENTICATION_NOT_PROBED = FindingCode(
    "AUTHENTICATION-NOT-PROBED",
    (WARNING, INFO),
    "It is unknown whether a release refuses wrong credentials at a listener. Information if the listener has an own "
    "callback handler, or the mechanism needs another service.",
    "Try a wrong credential after the first node runs the release, before the others follow.",
)
AUTHENTICATION_CHECK = Check(
    "authentication",
    "Wrong credentials, refused by the target's own classes",
    "upgrade.md#properties-of-the-jvm",
    (OAUTH_TOKENS_UNVERIFIED, WRONG_PASSWORD_ACCEPTED, AUTHENTICATION_NOT_PROBED),
    needs=(Need.CONFIGS,),
    examines=Examined.CONFIGS,
)


def has_sasl(config: Mapping[str, str]) -> bool:
    """Return whether a listener of a node with this configuration authenticates clients with SASL, or may do so."""
    found = find_listeners(config)
    return bool(found.mechanisms or found.unknown)


def find_accepted(probes: Probes) -> dict[Release, tuple[int, ...]]:
    """Return the nodes that accept a wrong credential, for each release on which one does."""
    found = {
        release: tuple(
            node_id
            for node_id, of_node in of_nodes.items()
            if any(probe.outcome is ProbeOutcome.ACCEPTED for probe in of_node)
        )
        for release, of_nodes in probes.items()
    }
    return {release: ids for release, ids in found.items() if ids}


def authentication_findings(probes: Probes, source: Mapping[int, Iterable[Probe]]) -> Iterator[Finding]:
    """Yield the findings of the releases on which nodes will start.

    `source`: node id → probes of the classes that run now, for the nodes in `find_accepted`; a node that is missing
    refuses them now.
    """
    alike: defaultdict[tuple[Release, str, str, ProbeOutcome, bool], dict[int, list[Probe]]] = defaultdict(dict)
    for release, of_nodes in probes.items():
        for node_id, of_node in of_nodes.items():
            already = {_key(probe) for probe in source.get(node_id, ()) if probe.outcome is ProbeOutcome.ACCEPTED}
            for probe in of_node:
                if probe.outcome is not ProbeOutcome.REFUSED:
                    kind = (release, probe.listener, probe.mechanism, probe.outcome, _key(probe) in already)
                    alike[kind].setdefault(node_id, []).append(probe)
    for (release, listener, mechanism, outcome, is_old), found in alike.items():
        some = [probe for of_node in found.values() for probe in of_node]
        subject = f"listener {listener} of {nodes(found)}, release {release}"
        where = f"for listener {listener} of {nodes(found)} with {mechanism}"
        if outcome is ProbeOutcome.UNKNOWN:
            yield AUTHENTICATION_NOT_PROBED.found(
                subject,
                f"It is unknown whether Kafka {release} refuses wrong credentials {where}: {some[0].reason}",
                severity=INFO if all(probe.is_own for probe in some) else WARNING,
            )
            continue
        accepted = few(dict.fromkeys(probe.what for probe in some), limit=8)
        sentence = f"The classes of Kafka {release} accept {accepted} {where}."
        sentence += (
            " The release that runs now accepts this as well." if is_old else " The release that runs now does not."
        )
        code = OAUTH_TOKENS_UNVERIFIED if mechanism == _OAUTH else WRONG_PASSWORD_ACCEPTED
        yield code.found(
            subject,
            sentence,
            _oauth_remedy(release) if mechanism == _OAUTH else None,
            severity=WARNING if is_old else BLOCKER,
        )


def _key(probe: Probe) -> tuple[str, str, str]:
    return probe.listener, probe.mechanism, probe.what


def _oauth_remedy(release: Release) -> str:
    if release < _VALIDATOR_SINCE:
        return "Set sasl.server.callback.handler.class of the listener to a class that verifies tokens."
    return (
        f'Add `{_VALIDATOR}: "{_BROKER_VALIDATOR}"` to release_overrides of {release} in the inventory, with a '
        "callback handler that verifies tokens; or choose another release."
    )
