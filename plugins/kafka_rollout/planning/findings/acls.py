"""What the authorizers of the releases ahead decide otherwise with the same ACLs, and ACLs that they do not know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kafka_rollout.base.findings import BLOCKER, WARNING, Check, Examined, Finding, FindingCode, Need, Severity
from kafka_rollout.base.wording import few
from kafka_rollout.model.acls import (
    ANYBODY,
    AUTHORIZER,
    STANDARD_AUTHORIZER,
    AccessChange,
    AclDifferences,
    describe_access,
)
from kafka_rollout.model.configs import NodeConfigs, is_reference
from kafka_rollout.releases.facts import Release

_NAMED = 50
ACL_MEANS_MORE = FindingCode(
    "ACL-MEANS-MORE",
    (BLOCKER, WARNING),
    "By the same ACLs, a release of the path allows what the current one denies. A warning if it is accepted (UNSAFE).",
    "Change or delete these ACLs, so that both releases decide alike. If the wider access is meant, allow it now with "
    "ACLs that both releases understand, for example with the host *.",
)
ACL_MEANS_LESS = FindingCode(
    "ACL-MEANS-LESS",
    (WARNING, BLOCKER),
    "By the same ACLs, a release of the path denies what the current one allows. A blocker of a downgrade, unless it "
    "is accepted (UNSAFE).",
    "Clients can lose access as soon as the first broker runs this release. If that is not meant, change or delete "
    "these ACLs first, so that both releases decide alike.",
)
ACL_NOT_KEPT = FindingCode(
    "ACL-NOT-KEPT",
    (BLOCKER, WARNING),
    "A release of the path does not know the operation or resource type of an ACL. Its brokers cannot list ACLs, and "
    "its next metadata snapshot destroys the ACL. A warning if it is accepted (UNSAFE), and in an upgrade.",
    "Save these ACLs, then delete them while all nodes run a release that knows them.",
)
ACLS_CHECK = Check(
    "acl-meaning",
    "Decisions about the ACLs, by the authorizers of all releases",
    "upgrade.md#acls-that-mean-something-else",
    (ACL_MEANS_MORE, ACL_MEANS_LESS, ACL_NOT_KEPT),
    needs=(Need.QUORUM,),
    examines=Examined.RELEASES,
)


def other_authorizers(configs: NodeConfigs) -> str:
    """Return why StandardAuthorizer alone does not decide on these nodes; empty if it does.

    `configs`: node id → setting → value.
    """
    names = {config.get(AUTHORIZER, "").strip() for config in configs.values()} - {"", STANDARD_AUTHORIZER}
    if not names:
        return ""
    if any(map(is_reference, names)):
        return f"A config provider has {AUTHORIZER}, so the decisions about ACLs were not compared."
    return (
        f"The authorizer {few(sorted(names))} is not Kafka's StandardAuthorizer: its decisions were not compared. Read "
        "its documentation about the releases of the path."
    )


def acl_findings(
    source: Release,
    differences: Mapping[Release, AclDifferences],
    *,
    down: bool,
    accepted: bool,
) -> Iterator[Finding]:
    """Yield a finding for each principal and direction. `differences`: of the releases of the path, in its order.

    A difference that an earlier release of the path has too is yielded once. `down`: a downgrade. `accepted`: UNSAFE.
    """
    seen: set[object] = set()
    for release, found in differences.items():
        if found.unknown:
            yield ACL_NOT_KEPT.found(
                f"{release}, ACLs",
                f"Kafka {release} does not know a value of {len(found.unknown)} ACLs: {few(found.unknown)}.",
                covers=map(str, found.unknown),
                severity=BLOCKER if down and not accepted else WARNING,
            )
        new = [one for one in found.changes if (one.principal, one.more, str(one.actions)) not in seen]
        seen |= {(one.principal, one.more, str(one.actions)) for one in new}
        for more, code in ((True, ACL_MEANS_MORE), (False, ACL_MEANS_LESS)):
            severity = _severity(more=more, down=down, accepted=accepted)
            changes = [one for one in new if one.more is more]
            for one in changes[:_NAMED]:
                yield code.found(
                    access_subject(release, one),
                    describe_access(one, source, release),
                    severity=severity,
                    covers=one.decisions,
                )
            if rest := changes[_NAMED:]:
                others = few(one.principal for one in rest)
                yield code.found(
                    f"{release}, further principals",
                    f"{others} as well.",
                    severity=severity,
                    covers=(what for one in rest for what in one.decisions),
                )


def _severity(*, more: bool, down: bool, accepted: bool) -> Severity:
    return BLOCKER if (more or down) and not accepted else WARNING


def access_subject(release: Release, change: AccessChange) -> str:
    return f"{release}, {'every principal' if change.principal == ANYBODY else change.principal}"


def access_of(findings: Iterable[Finding]) -> frozenset[str]:
    """Return each decision of the findings about other decisions, which an approver has read."""
    codes = (ACL_MEANS_MORE.code, ACL_MEANS_LESS.code)
    return frozenset(what for finding in findings if finding.code in codes for what in finding.covers)
