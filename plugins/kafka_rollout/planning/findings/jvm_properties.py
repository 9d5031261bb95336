"""Findings about properties of the JVM without which a release does not start: OAuth URLs and files, login modules.

Source: ConfigurationUtils and JaasContext of kafka-clients 3.9.0 to 4.3.1, BrokerJwtValidator of 4.4.0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kafka_rollout.base.findings import BLOCKER, WARNING, Check, Examined, Finding, FindingCode, Need
from kafka_rollout.base.wording import few, nodes
from kafka_rollout.model.configs import is_reference
from kafka_rollout.model.starts import LOGIN_MODULES, login_modules, properties_of
from kafka_rollout.releases.facts import Release

ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
ALLOWED_FILES = "org.apache.kafka.sasl.oauthbearer.allowed.files"
DISALLOWED_MODULES, ALLOWED_MODULES = LOGIN_MODULES
_JNDI, _LDAP = "com.sun.security.auth.module.JndiLoginModule", "com.sun.security.auth.module.LdapLoginModule"

# The first release in which a property exists; unset, it allows everything. In the second release unset allows nothing.
_URLS_SINCE, _URLS_REQUIRED = Release(3, 9, 1), Release(4, 0, 0)
_FILES_REQUIRED = Release(4, 1, 0)
_LDAP_REFUSED = Release(3, 9, 1)
_ALLOWED_MODULES_SINCE = Release(4, 2, 0)
_CLAIMS_REQUIRED = Release(4, 4, 0)
_OLD_HANDLERS_REMOVED = Release(4, 0, 0)

_MECHANISMS = ("sasl.enabled.mechanisms", "sasl.mechanism.inter.broker.protocol", "sasl.mechanism.controller.protocol")
_JWKS = "sasl.oauthbearer.jwks.endpoint.url"
_URLS = (_JWKS, "sasl.oauthbearer.token.endpoint.url")
_FILES = tuple(f"sasl.oauthbearer.assertion.{name}" for name in ("file", "private.key.file", "template.file"))
_VALIDATOR_CLASS, _KAFKAS_VALIDATOR = "sasl.oauthbearer.jwt.validator.class", "DefaultJwtValidator"
_OLD_HANDLERS = "org.apache.kafka.common.security.oauthbearer.secured."


JVM_PROPERTY_MISSING = FindingCode(
    "JVM-PROPERTY-MISSING",
    (BLOCKER, WARNING),
    "A node would not start, because a property of its JVM does not allow a URL, a file or a login module.",
)
OAUTH_CLAIM_UNVERIFIED = FindingCode(
    "OAUTH-CLAIM-UNVERIFIED",
    BLOCKER,
    "From 4.4.0 on, a JWKS endpoint needs an expected audience and an expected issuer.",
)
OAUTH_HANDLER_REMOVED = FindingCode(
    "OAUTH-HANDLER-REMOVED",
    BLOCKER,
    "A setting names an OAuth handler that 4.0 removed.",
    "Use the class with the same name in org.apache.kafka.common.security.oauthbearer, which older releases have too.",
)
JVM_OPTION_REJECTED = FindingCode(
    "JVM-OPTION-REJECTED",
    BLOCKER,
    "A node's own Java refuses an option of its JVM.",
    "Correct the option: in KAFKA_HEAP_OPTS, KAFKA_JVM_PERFORMANCE_OPTS, KAFKA_GC_LOG_OPTS or KAFKA_OPTS of the unit "
    "(then run `systemctl daemon-reload`), or in jvm.options of a local process. Then plan again.",
)
JVM_PROPERTIES_CHECK = Check(
    "jvm-properties",
    "Options and properties of each node's JVM",
    "upgrade.md#properties-of-the-jvm",
    (JVM_OPTION_REJECTED, JVM_PROPERTY_MISSING, OAUTH_CLAIM_UNVERIFIED, OAUTH_HANDLER_REMOVED),
    needs=(Need.CONFIGS,),
    examines=Examined.CONFIGS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    """One reason why a release does not start."""

    sentence: str
    remedy: str
    code: FindingCode = JVM_PROPERTY_MISSING
    is_certain: bool = True
    """False if a value of it is unknown."""
    is_set: bool = False
    """The property has a list, which cannot be compared with the unknown value."""


def needs_jvm_arguments(config: Mapping[str, str]) -> bool:
    """Return whether properties of the JVM decide if a node with this configuration starts."""
    return bool(_login_modules(config)) or (_uses_oauth(config) and bool(_values(config, (*_URLS, *_FILES))))


def jvm_findings(
    configs: Mapping[int, Mapping[Release, Mapping[str, str]]],
    arguments: Mapping[int, Mapping[Release, Sequence[str]]],
    *,
    observable: bool = True,
) -> tuple[Finding, ...]:
    """Return the findings. `configs`: node id → release → configuration on it.

    `arguments`: of the JVM's next start by node id and release, without those that are unknown, which is a blocker if
    such values are `observable` in this cluster, else a warning.
    """
    alike: defaultdict[tuple[Release, _Problem], list[int]] = defaultdict(list)
    for node_id, by_release in configs.items():
        of_node = arguments.get(node_id, {})
        for release, config in by_release.items():
            properties = properties_of(of_node[release]) if release in of_node else None
            for problem in _problems(config, release, properties):
                alike[release, problem].append(node_id)
    return tuple(
        problem.code.found(
            f"{nodes(ids)}, release {release}",
            f"{nodes(ids).capitalize()} would not start on Kafka {release}: {problem.sentence}"
            if problem.is_certain
            else f"It is unknown whether {nodes(ids)} would start on Kafka {release}: {problem.sentence}",
            problem.remedy,
            severity=BLOCKER if problem.is_certain or (observable and not problem.is_set) else WARNING,
        )
        for (release, problem), ids in alike.items()
    )


def jvm_option_findings(refused: Mapping[int, Sequence[str]]) -> Iterator[Finding]:
    """Yield the findings. `refused`: node id → why its own Java does not start, in Java's words."""
    alike: defaultdict[str, list[int]] = defaultdict(list)
    for node_id, sentences in refused.items():
        for sentence in sentences:
            alike[sentence].append(node_id)
    for sentence, ids in alike.items():
        yield JVM_OPTION_REJECTED.found(
            nodes(ids), f"The Java of {nodes(ids)} refuses the options with which it would start next: {sentence}."
        )


def _problems(config: Mapping[str, str], release: Release, properties: Mapping[str, str] | None) -> Iterator[_Problem]:
    if _uses_oauth(config):
        if release >= _URLS_SINCE:
            yield from _listed(config, _URLS, ALLOWED_URLS, properties, is_required=release >= _URLS_REQUIRED)
        if release >= _FILES_REQUIRED:
            yield from _listed(config, _FILES, ALLOWED_FILES, properties, is_required=True)
        if release >= _OLD_HANDLERS_REMOVED:
            yield from _old_handlers(config)
        if release >= _CLAIMS_REQUIRED:
            yield from _claims(config)
    yield from _modules(config, release, properties)


def _listed(
    config: Mapping[str, str],
    settings: Sequence[str],
    name: str,
    properties: Mapping[str, str] | None,
    *,
    is_required: bool,
) -> Iterator[_Problem]:
    """Compare the values of settings with the list in a property. Without `is_required`, an unset one allows all."""
    values = _values(config, settings)
    if not values or (properties is not None and name not in properties and not is_required):
        return
    wanted = list(dict.fromkeys(f"<value of {key}>" if is_reference(text) else text for key, text in values.items()))
    if properties is None:
        if is_required:
            yield _Problem(
                sentence=f"{few(sorted(values))} must be in the JVM property {name}, and the arguments of the JVM are "
                "unknown.",
                remedy=_add(name, wanted),
                is_certain=False,
            )
        return
    allowed = _split(properties.get(name, ""))
    refused = [key for key, text in values.items() if not is_reference(text) and text not in allowed]
    unknown = [key for key, text in values.items() if is_reference(text)]
    if refused or (unknown and not allowed):
        yield _Problem(
            sentence=f"the JVM property {name} does not contain the values of {few(sorted(refused or unknown))}.",
            remedy=_add(name, list(dict.fromkeys((*allowed, *wanted)))),
        )
    elif unknown:
        yield _Problem(
            sentence=f"a config provider has the values of {few(sorted(unknown))}, which must be in the JVM property "
            f"{name}.",
            remedy=f"Compare these values with {name}={properties[name]}.",
            is_certain=False,
            is_set=True,
        )


def _claims(config: Mapping[str, str]) -> Iterator[_Problem]:
    """Report a JWKS URL without an expected audience or issuer: BrokerJwtValidator.configure of 4.4.0 refuses it."""
    if any(not text.endswith(_KAFKAS_VALIDATOR) for text in _values(config, (_VALIDATOR_CLASS,)).values()):
        return
    for what in ("audience", "issuer"):
        missing = [
            key
            for key in _values(config, (_JWKS,))
            if not _is_set_for(config, key, f"sasl.oauthbearer.expected.{what}")
            and not _is_set_for(config, key, f"sasl.oauthbearer.allow.unverified.{what}")
        ]
        if missing:
            yield _Problem(
                code=OAUTH_CLAIM_UNVERIFIED,
                sentence=f"{few(sorted(missing))} is set without sasl.oauthbearer.expected.{what}.",
                remedy=f"Set sasl.oauthbearer.expected.{what} in the same scope now. Older releases accept it too.",
            )


def _old_handlers(config: Mapping[str, str]) -> Iterator[_Problem]:
    found = sorted(key for key, text in config.items() if key.endswith(".class") and text.startswith(_OLD_HANDLERS))
    if found:
        yield _Problem(
            code=OAUTH_HANDLER_REMOVED,
            sentence=f"{few(found)} names a class of {_OLD_HANDLERS.rstrip('.')}, which 4.0 removed.",
            remedy=OAUTH_HANDLER_REMOVED.remedy,
        )


def _modules(config: Mapping[str, str], release: Release, properties: Mapping[str, str] | None) -> Iterator[_Problem]:
    modules = _login_modules(config)
    if properties is None:
        risky = [name for name in modules if name == _LDAP]
        if risky and release >= _LDAP_REFUSED:
            yield _Problem(
                sentence=f"it refuses {_LDAP} by default, and the arguments of the JVM are unknown.",
                remedy=_allow_modules(release, modules, {}),
                is_certain=False,
            )
        return
    allowed = properties.get(ALLOWED_MODULES) if release >= _ALLOWED_MODULES_SINCE else None
    if allowed is not None:
        refused = [name for name in modules if name not in _split(allowed)]
    else:
        default = f"{_JNDI},{_LDAP}" if release >= _LDAP_REFUSED else _JNDI
        refused = [name for name in modules if name in _split(properties.get(DISALLOWED_MODULES, default))]
    if refused:
        yield _Problem(
            sentence=f"it refuses the login modules {few(refused)}.",
            remedy=_allow_modules(release, modules, properties),
        )


def _allow_modules(release: Release, modules: Sequence[str], properties: Mapping[str, str]) -> str:
    """Return the remedy. From 4.2.0 on the property names all modules that are allowed, before the refused ones."""
    if release >= _ALLOWED_MODULES_SINCE:
        return _add(ALLOWED_MODULES, list(dict.fromkeys((*_split(properties.get(ALLOWED_MODULES, "")), *modules))))
    disallowed = _split(properties.get(DISALLOWED_MODULES, f"{_JNDI},{_LDAP}"))
    return _add(DISALLOWED_MODULES, [name for name in disallowed if name not in modules])


def _add(name: str, values: Sequence[str]) -> str:
    return (
        f"Add -D{name}={','.join(values)} to the arguments of the JVM: in KAFKA_OPTS in the Environment of the unit "
        "(then run `systemctl daemon-reload`), in the start script or wrapper that sets KAFKA_OPTS itself, or in "
        "jvm.options of a local process. Releases without the property ignore it. If the environment of the unit is in "
        "a file, also restart the node. Then plan again."
    )


def _uses_oauth(config: Mapping[str, str]) -> bool:
    return any("OAUTHBEARER" in text.upper() or is_reference(text) for text in _values(config, _MECHANISMS).values())


def _login_modules(config: Mapping[str, str]) -> tuple[str, ...]:
    texts = _values(config, ("sasl.jaas.config",)).values()
    return tuple(sorted({name for text in texts for name in login_modules(text)}))


def _values(config: Mapping[str, str], settings: Sequence[str]) -> dict[str, str]:
    """Return the values of settings by key: of all listeners and mechanisms, and without such a prefix."""
    return {
        key: text.strip()
        for key, text in config.items()
        if text.strip() and any(key == name or key.endswith(f".{name}") for name in settings)
    }


def _is_set_for(config: Mapping[str, str], key: str, setting: str) -> bool:
    """Return whether a setting applies where `key` does: its prefix is a part of the prefix of `key`."""
    prefix = key.removesuffix(_JWKS)
    return any(
        prefix.startswith(found.removesuffix(setting)) and text.lower() != "false"
        for found, text in _values(config, (setting,)).items()
    )


def _split(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]
