"""Findings about the certificates that the listeners of running nodes present.

A restarted node opens new connections to the others, and each handshake checks the other's certificate again: a roll
can stop halfway although no file has changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from kafka_rollout.base.findings import BLOCKER, WARNING, Check, CheckOf, Finding, FindingCode, UnknownValue
from kafka_rollout.base.wording import few, nodes
from kafka_rollout.model.listeners import ListenerCertificate

MARGIN_S = 30 * 24 * 3600.0
"""Time after the planned end in which an end is a warning: enough to renew certificates, and to roll back."""
_RENEW = "Renew the certificate, and restart the node or reconfigure its keystore (kafka-configs.sh)."

CERTIFICATE_ENDED = FindingCode(
    "CERTIFICATE-ENDED",
    BLOCKER,
    "The certificate of a listener has ended. Nodes and clients that connect again are refused.",
    f"{_RENEW} Then plan again.",
)
CERTIFICATE_ENDS = FindingCode(
    "CERTIFICATE-ENDS",
    WARNING,
    f"The certificate of a listener ends during the run, or within {MARGIN_S / 86400:.0f} days after it.",
    f"{_RENEW} Do it before the run, or approve it with the plan.",
)
CERTIFICATES_CHECK = Check(
    "listener-certificates",
    "Certificates that the listeners present",
    "upgrade.md#configuration-of-a-node",
    (CERTIFICATE_ENDED, CERTIFICATE_ENDS),
    of=(CheckOf.UPGRADE, CheckOf.DOWNGRADE, CheckOf.RESTART),
    needs=(),
)


def certificate_findings(
    certificates: Mapping[int, Sequence[ListenerCertificate]], *, now: float, planned_end: float
) -> Iterator[Finding]:
    """Yield one finding for each certificate and severity. `certificates`: by node id. Times in epoch seconds."""
    alike: defaultdict[tuple[FindingCode, str, float], dict[int, list[str]]] = defaultdict(dict)
    for node_id, found in sorted(certificates.items()):
        for one in found:
            if one.ends_at is not None and one.ends_at < planned_end + MARGIN_S:
                code = CERTIFICATE_ENDED if one.ends_at <= now else CERTIFICATE_ENDS
                alike[code, one.subject, one.ends_at].setdefault(node_id, []).append(one.address)
    for (code, subject, ends_at), by_node in alike.items():
        addresses = [address for found in by_node.values() for address in found]
        at = f"{datetime.fromtimestamp(ends_at, UTC):%Y-%m-%d %H:%M} UTC"
        verb = "ended" if code is CERTIFICATE_ENDED else "ends"
        yield code.found(
            f"{nodes(sorted(by_node))}, {subject}",
            f"The certificate {subject} of {nodes(sorted(by_node))} ({few(addresses)}) {verb} at {at}.",
        )


def unread_certificates(certificates: Mapping[int, Sequence[ListenerCertificate]]) -> tuple[UnknownValue, ...]:
    """Return the certificates that were not read."""
    return tuple(
        UnknownValue(
            f"{one.address} of node {node_id}",
            f"The certificate was not read at {one.address} of node {node_id} ({one.problem}).",
        )
        for node_id, found in sorted(certificates.items())
        for one in found
        if one.ends_at is None
    )
