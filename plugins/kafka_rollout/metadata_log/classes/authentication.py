"""Wrong credentials, given to the SASL servers of a release as a broker would use them for a listener.

Each probe has a counterpart that is right and must be accepted: classes that refuse everything, because the probe does
not fit them, would prove nothing. No password, key or URL of a node is used: users and keys are made for the probe.

Source: SaslChannelBuilder.createServerCallbackHandlers for the handlers, RFC 5802 for SCRAM, RFC 7628 for OAUTHBEARER.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from kafka_rollout.metadata_log.classes.images import sentence_of
from kafka_rollout.metadata_log.classes.node_configs import KAFKA_CONFIG, java_properties, neutral_properties
from kafka_rollout.model.listeners import Listener, find_listeners
from kafka_rollout.model.probes import Probe, ProbeOutcome
from kafka_rollout.releases.jvm.jvm import Jvm, MissingClassError, java_class

_HANDLER = "sasl.server.callback.handler.class"
_SECURITY = "org.apache.kafka.common.security"
_OAUTH = f"{_SECURITY}.oauthbearer"
_UNSECURED = (
    f"{_OAUTH}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
    f"{_OAUTH}.OAuthBearerUnsecuredValidatorCallbackHandler",
)
_JWKS = "sasl.oauthbearer.jwks.endpoint.url"
_AUDIENCE, _ISSUER = "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer"
_SUBJECT = "sasl.oauthbearer.sub.claim.name"
_ALLOWED = tuple(f"org.apache.kafka.sasl.oauthbearer.allowed.{what}" for what in ("urls", "files"))
_SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_USER = "probe-of-kafka-rollout"
_VALID_S = 600
_KEY_BITS = 2048
_ITERATIONS = 4096  # the minimum of ScramMechanism

Accepts = Callable[[str], bool]
"""Gives one credential, by name, to a new SASL server; returns whether the client is logged in then."""


class _NotProbedError(Exception):
    """The message is a sentence."""


@dataclass(frozen=True, slots=True)
class _Way:
    right: str
    wrong: tuple[str, ...]
    """Name of a credential that must be refused. `right` must be accepted."""
    accepts: Accepts


def probe_authentication(jvm: Jvm, nodes: Mapping[int, Mapping[str, str]]) -> dict[int, tuple[Probe, ...]]:
    """Return the probes of each node's listeners with SASL. `nodes`: node id → configuration on the release."""
    known: dict[tuple[object, ...], tuple[Probe, ...]] = {}
    found: dict[int, tuple[Probe, ...]] = {}
    for node_id, config in nodes.items():
        neutral = neutral_properties(config)
        probes: list[Probe] = []
        for listener in find_listeners(neutral).served:
            for mechanism in listener.mechanisms:
                key = (mechanism, *_decisive(listener, mechanism))
                if key not in known:
                    known[key] = tuple(_probe(jvm, neutral, listener, mechanism))
                probes += (replace(probe, listener=listener.name) for probe in known[key])
        found[node_id] = tuple(probes)
    return found


def _decisive(listener: Listener, mechanism: str) -> tuple[object, ...]:
    """Return what decides the result of a listener."""
    of_oauth = mechanism == "OAUTHBEARER"
    settings = {name: value for name, value in listener.settings.items() if of_oauth and "oauthbearer" in name.lower()}
    return (listener.setting(mechanism, _HANDLER), *sorted(settings.items()))


def _probe(jvm: Jvm, config: Mapping[str, str], listener: Listener, mechanism: str) -> Iterator[Probe]:
    unknown = Probe(
        listener=listener.name, mechanism=mechanism, what="a wrong credential", outcome=ProbeOutcome.UNKNOWN
    )
    handler = listener.setting(mechanism, _HANDLER)
    if handler and not (handler.startswith("org.apache.kafka.") and jvm.find_class(handler)):
        yield replace(unknown, reason=f"{handler} is not a class of Kafka.", is_own=True)
        return
    if mechanism not in ("PLAIN", "OAUTHBEARER", *_SCRAM):
        yield replace(unknown, reason=f"A login with {mechanism} needs another service.", is_own=True)
        return
    try:
        with tempfile.TemporaryDirectory(prefix="kafka-rollout-") as folder:
            if mechanism == "OAUTHBEARER":
                way = _oauth(jvm, config, listener, handler, Path(folder))
            else:
                way = _plain(jvm, handler) if mechanism == "PLAIN" else _scram(jvm, mechanism)
            if not way.accepts(way.right):
                yield replace(unknown, reason=f"The classes also refused {way.right}.")
                return
            for what in way.wrong:
                outcome = ProbeOutcome.ACCEPTED if way.accepts(what) else ProbeOutcome.REFUSED
                yield replace(unknown, what=what, outcome=outcome)
    except (_NotProbedError, MissingClassError) as error:
        yield replace(unknown, reason=str(error))
    except Py4JJavaError as error:
        yield replace(unknown, reason=f"{java_class(error).rpartition('.')[2]}: {sentence_of(error)}")
    except Py4JError as error:
        if type(error) is not Py4JError:  # the process is gone
            raise
        yield replace(unknown, reason=str(error).strip().splitlines()[0])


def _logs_in(server: Any, *messages: bytes) -> bool:
    """Return whether a SASL server completes. It refuses by an exception, or by an answer without completing."""
    try:
        for message in messages:
            server.evaluateResponse(message)
    except Py4JJavaError as error:
        if "Sasl" not in java_class(error):
            raise
        return False
    return bool(server.isComplete())


# --- PLAIN ---


def _plain(jvm: Jvm, handler: str) -> _Way:
    right = secrets.token_hex(8)
    passwords = {"the right password": right, "a wrong password": right[::-1] + "x", "an empty password": ""}
    entry = _entry(jvm, f"{_SECURITY}.plain.PlainLoginModule", {f"user_{_USER}": right})
    callbacks = jvm.static(handler or f"{_SECURITY}.plain.internals.PlainServerCallbackHandler")()
    callbacks.configure(jvm.packages.java.util.HashMap(), "PLAIN", entry)

    def accepts(what: str) -> bool:
        user, password = (_USER, passwords[what]) if what in passwords else ("nobody", right)
        server = jvm.static(f"{_SECURITY}.plain.internals.PlainSaslServer")(callbacks)
        return _logs_in(server, f"\0{user}\0{password}".encode())

    return _Way("the right password", ("a wrong password", "an empty password", "an unknown user"), accepts)


# --- SCRAM ---


def _scram(jvm: Jvm, mechanism: str) -> _Way:
    right = secrets.token_hex(8)
    passwords = {"the right password": right, "a wrong password": right[::-1] + "x"}
    internals = f"{_SECURITY}.scram.internals"
    kind = jvm.static(f"{internals}.ScramMechanism").forMechanismName(mechanism)
    names = jvm.static(f"{internals}.ScramMechanism").mechanismNames()
    credential = jvm.packages.java.lang.Class.forName(f"{_SECURITY}.scram.ScramCredential")
    cache = jvm.static(f"{_SECURITY}.authenticator.CredentialCache")().createCache(mechanism, credential)
    cache.put(_USER, jvm.static(f"{internals}.ScramFormatter")(kind).generateCredential(right, _ITERATIONS))
    tokens = jvm.static(f"{_SECURITY}.token.delegation.internals.DelegationTokenCache")(names)
    callbacks = jvm.static(f"{internals}.ScramServerCallbackHandler")(cache, tokens)
    callbacks.configure(jvm.packages.java.util.HashMap(), mechanism, jvm.packages.java.util.ArrayList())

    def accepts(what: str) -> bool:
        server = jvm.static(f"{internals}.ScramSaslServer")(kind, jvm.packages.java.util.HashMap(), callbacks)
        bare = f"n={_USER},r={secrets.token_hex(12)}"
        first = bytes(server.evaluateResponse(f"n,,{bare}".encode())).decode()
        return _logs_in(server, _last_message(_SCRAM[mechanism], bare, first, passwords[what]))

    return _Way("the right password", ("a wrong password",), accepts)


def _last_message(digest: str, bare: str, first: str, password: str) -> bytes:
    """Return the client's last message: RFC 5802, section 3."""
    fields = dict(field.split("=", 1) for field in first.split(","))
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    key = hmac.digest(salted, b"Client Key", digest)
    without_proof = f"c=biws,r={fields['r']}"
    signature = hmac.digest(hashlib.new(digest, key).digest(), f"{bare},{first},{without_proof}".encode(), digest)
    proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


# --- OAUTHBEARER ---


def _oauth(jvm: Jvm, config: Mapping[str, str], listener: Listener, handler: str, folder: Path) -> _Way:
    generate = jvm.static("org.jose4j.jwk.RsaJwkGenerator").generateJwk
    key, foreign = generate(_KEY_BITS), generate(_KEY_BITS)
    for one in (key, foreign):
        one.setKeyId("probe")
    keys = folder / "keys.json"
    keys.write_text(f'{{"keys": [{key.toJson()}]}}')
    url = keys.as_uri()
    for name, value in zip(_ALLOWED, (url, str(keys)), strict=True):
        jvm.packages.java.lang.System.setProperty(name, value)
    # As the broker does: typed values, with those of the listener in place of the common ones.
    broker = jvm.static(KAFKA_CONFIG).fromProps(java_properties(jvm, config), False)
    values = jvm.packages.java.util.HashMap(broker.valuesWithPrefixOverride(f"listener.name.{listener.name.lower()}."))
    for name in (_JWKS, f"oauthbearer.{_JWKS}"):
        values.put(name, url)
    callbacks = jvm.static(handler or jvm.locate(*_UNSECURED))()
    callbacks.configure(values, "OAUTHBEARER", _entry(jvm, f"{_OAUTH}.OAuthBearerLoginModule", {}))

    now = int(time.time())
    audience = [one.strip() for one in listener.setting("OAUTHBEARER", _AUDIENCE).split(",") if one.strip()]
    issuer = listener.setting("OAUTHBEARER", _ISSUER)
    claims: dict[str, Any] = {
        "iss": issuer or "https://issuer.invalid",
        "iat": now,
        "exp": now + _VALID_S,
        "scope": "a",
    }
    claims |= dict.fromkeys(("sub", listener.setting("OAUTHBEARER", _SUBJECT) or "sub"), _USER)
    claims |= {"aud": audience[0]} if audience else {}

    def signed(with_key: Any, **changed: Any) -> str:
        token = jvm.static("org.jose4j.jws.JsonWebSignature")()
        token.setPayload(json.dumps({**claims, **changed}))
        token.setKey(with_key.getPrivateKey())
        token.setKeyIdHeaderValue("probe")
        token.setAlgorithmHeaderValue("RS256")
        return str(token.getCompactSerialization())

    right = signed(key)
    head, body, _ = right.split(".")
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    unsigned = f"{none}.{body}."
    tokens = {
        "a valid token": right if handler else unsigned,  # the handler without a setting takes unsigned tokens only
        "a token without a signature": unsigned,
        "a token with a forged signature": f"{head}.{body}.{'A' * 342}",
        "a token with the signature of another key": signed(foreign),
    }
    if issuer:
        tokens["a token of another issuer"] = signed(key, iss="https://attacker.invalid")
    if audience:
        tokens["a token for another audience"] = signed(key, aud="probe-of-nobody")
    expired = {"iat": now - 2 * _VALID_S * 10, "exp": now - _VALID_S * 10}
    tokens["an expired token"] = signed(key, **expired)

    def accepts(what: str) -> bool:
        server = jvm.static(f"{_OAUTH}.internals.OAuthBearerSaslServer")(callbacks)
        return _logs_in(server, f"n,,\1auth=Bearer {tokens[what]}\1\1".encode())

    return _Way("a valid token", tuple(what for what in tokens if what != "a valid token"), accepts)


def _entry(jvm: Jvm, module: str, options: Mapping[str, str]) -> Any:
    """Return a list with one entry of JAAS."""
    entries, values = jvm.packages.java.util.ArrayList(), jvm.packages.java.util.HashMap()
    for name, value in options.items():
        values.put(name, value)
    entry = jvm.packages.javax.security.auth.login.AppConfigurationEntry
    entries.add(entry(module, entry.LoginModuleControlFlag.REQUIRED, values))
    return entries
