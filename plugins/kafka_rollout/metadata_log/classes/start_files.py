"""Keystores, truststores and login modules of a node, loaded by a release's own classes as a starting node does.

Source: ChannelBuilders.create, which SocketServer and the clients of a broker call for each listener: SslFactory builds
the SSL engine, and JaasContext reads the login modules. Nothing is connected and nobody logs in.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

from kafka_rollout.model.configs import unresolved_settings
from kafka_rollout.model.endpoints import Endpoint, endpoints_of
from kafka_rollout.model.starts import LOGIN_FILE, NodeStart, login_file, named_files
from kafka_rollout.releases.jvm.jvm import Jvm

_FACTORY = "org.apache.kafka.common.security.ssl.SslFactory"
_CONTEXT = "org.apache.kafka.common.security.JaasContext"
_NO_MODULE_REFUSED = "org.apache.kafka.disallowed.login.modules"
_MECHANISM_OF_BROKERS, _MECHANISM_OF_CONTROLLERS = (
    "sasl.mechanism.inter.broker.protocol",
    "sasl.mechanism.controller.protocol",
)
_X509, _SIGNATURE = "java.security.cert.X509Certificate", "java.security.Signature"
# Without what Java found in place of it, which can be a password.
_LOGIN_ERROR = re.compile(r"(Line \d+: expected \[[^\]]*\]|No such file or directory)")
_SIGNATURES = {"RSA": "SHA256withRSA", "EC": "SHA256withECDSA", "EdDSA": "EdDSA", "DSA": "SHA256withDSA"}


@dataclass(frozen=True, slots=True)
class _Loaded:
    """`config`: KafkaConfig whose paths are those of this machine. `paths`: path on this machine → in the file."""

    jvm: Jvm
    config: Any
    start: NodeStart
    paths: Mapping[str, str]

    def values(self, listener: Endpoint) -> Any:
        return self.config.valuesWithPrefixOverride(listener.prefix)

    def sentence(self, error: Py4JJavaError) -> str:
        """Kafka's messages, the outer one first, with the paths of the node."""
        cause, said = error.java_exception, ""
        while cause is not None:
            message = str(cause.getMessage() or cause.getClass().getSimpleName())
            if message not in said:
                said = f"{said}: {message}" if said else message
            cause = cause.getCause()
        for here, there in self.paths.items():
            said = said.replace(here, there)
        return said


def with_local_paths(start: NodeStart) -> dict[str, str]:
    """Return the configuration with the paths of this machine in place of those that it names."""
    files = start.files or {}
    local = {key: files[path] for key, path in named_files(start.properties).items() if path in files}
    return {**start.properties, **local}


def find_start_problems(jvm: Jvm, config: Any, start: NodeStart) -> Iterator[str]:
    """Yield why the node would not start because of a file or a login module. `config`: KafkaConfig of
    `with_local_paths`. Yields nothing for a listener whose files this process cannot read, or whose values a config
    provider has."""
    unresolved = set(unresolved_settings(start.properties))
    loaded = _Loaded(jvm, config, start, {here: there for there, here in (start.files or {}).items()})
    for listener in endpoints_of(start.properties):
        if listener.uses_tls and not unresolved & listener.settings(start.properties, "ssl.").keys():
            yield from _tls_problems(loaded, listener)
        if listener.uses_sasl and not any(key.startswith((listener.prefix, "sasl.")) for key in unresolved):
            yield from _login_problems(loaded, listener)


def _tls_problems(loaded: _Loaded, listener: Endpoint) -> Iterator[str]:
    stores = {
        line[1]
        for name in ("ssl.keystore.location", "ssl.truststore.location")
        if (line := listener.setting(loaded.start.properties, name)) is not None
    }
    if loaded.start.files is None or not stores <= loaded.start.files.keys():
        return
    jvm = loaded.jvm
    factory = jvm.packages.java.lang.Class.forName(_FACTORY)
    constructor = next(one for one in factory.getConstructors() if one.getParameterCount() == 3)
    mode = next(
        one
        for one in constructor.getParameterTypes()[0].getEnumConstants()
        if one.name() == ("SERVER" if listener.is_own else "CLIENT")
    )
    # A broker asks SASL clients for a certificate only if a line of the listener says so.
    own = f"{listener.prefix}ssl.client.auth" in loaded.start.properties
    override = "none" if listener.is_own and listener.uses_sasl and not own else None
    engines = constructor.newInstance(
        jvm.array(jvm.packages.java.lang.Object, [mode, override, listener.is_own and listener.is_inter_broker])
    )
    try:
        engines.configure(loaded.values(listener))
    except Py4JJavaError as error:
        yield f"listener {listener.name}: {loaded.sentence(error)}"
        return
    try:
        if listener.is_own and (store := engines.sslEngineFactory().keystore()) is not None:
            yield from (f"listener {listener.name}: {why}" for why in _of_keystore(loaded, listener, store))
    finally:
        engines.close()


def _of_keystore(loaded: _Loaded, listener: Endpoint, store: Any) -> Iterator[str]:
    """Yield why no client could use the certificate. Kafka itself tries only that of the listener between brokers."""
    jvm = loaded.jvm
    for alias in _elements(store.aliases()):
        if not store.isKeyEntry(alias):
            continue
        chain = list(store.getCertificateChain(alias) or ())
        for certificate in chain:
            ends_at = _ask(jvm, _X509, certificate, "getNotAfter")
            if ends_at.getTime() <= time.time() * 1000:
                name = _ask(jvm, _X509, certificate, "getSubjectX500Principal").getName()
                yield f"the certificate {name} of its keystore ended at {ends_at.toInstant().toString()}"
        if chain and not _belongs(loaded, listener, store, alias, chain[0]):
            yield "the key of its keystore does not belong to the certificate"


def _elements(enumeration: Any) -> Iterator[str]:
    while enumeration.hasMoreElements():
        yield str(enumeration.nextElement())


def _belongs(loaded: _Loaded, listener: Endpoint, store: Any, alias: str, certificate: Any) -> bool:
    """Return whether the key of an entry signs what its certificate verifies; True if it cannot be tried. The key stays
    in the Java process."""
    jvm, values = loaded.jvm, loaded.values(listener)
    for name in ("ssl.key.password", "ssl.keystore.password", ""):
        password = values.get(name) if name else None
        try:
            key = store.getKey(alias, None if password is None else _characters(jvm, str(password.value())))
            break
        except Py4JJavaError:
            continue
    else:
        return True
    public = _ask(jvm, "java.security.cert.Certificate", certificate, "getPublicKey")
    algorithms = [str(_ask(jvm, "java.security.Key", one, "getAlgorithm")) for one in (key, public)]
    if algorithms[0] != algorithms[1]:
        return False
    if algorithms[0] not in _SIGNATURES:
        return True
    signature = jvm.packages.java.security.Signature.getInstance(_SIGNATURES[algorithms[0]])
    probe = b"kafka-rollout"
    try:
        _ask(jvm, _SIGNATURE, signature, "initSign", ("java.security.PrivateKey", key))
        _ask(jvm, _SIGNATURE, signature, "update", ("[B", probe))
        signed = _ask(jvm, _SIGNATURE, signature, "sign")
        _ask(jvm, _SIGNATURE, signature, "initVerify", ("java.security.PublicKey", public))
        _ask(jvm, _SIGNATURE, signature, "update", ("[B", probe))
        return bool(_ask(jvm, _SIGNATURE, signature, "verify", ("[B", signed)))
    except Py4JJavaError:
        return False


def _ask(jvm: Jvm, kind: str, target: Any, method: str, *arguments: tuple[str, Any]) -> Any:
    """Call a method of a public class or interface: that of the object itself can be one that Java does not export.

    `arguments`: name of the type, and value.
    """
    classes = jvm.packages.java.lang.Class
    types = jvm.array(classes, [classes.forName(name) for name, _ in arguments])
    return jvm.call(classes.forName(kind).getMethod(method, types), target, *(value for _, value in arguments))


def _characters(jvm: Jvm, text: str) -> Any:
    return jvm.array(jvm.packages.char, list(text))


def _login_problems(loaded: _Loaded, listener: Endpoint) -> Iterator[str]:
    jvm, properties, path = loaded.jvm, loaded.start.properties, login_file(loaded.start.jvm_arguments)
    if path and path not in (loaded.start.files or {}):
        return
    values = loaded.values(listener)
    mechanisms = [str(one) for one in values.get("sasl.enabled.mechanisms") or ()] if listener.is_own else []
    for applies, name in (
        (listener.is_inter_broker, _MECHANISM_OF_BROKERS),
        (listener.is_of_controllers, _MECHANISM_OF_CONTROLLERS),
    ):
        if applies and (mechanism := values.get(name)) is not None:
            mechanisms.append(str(mechanism))
    system = jvm.packages.java.lang.System
    system.setProperty(_NO_MODULE_REFUSED, "")  # those of the node's own JVM are another check
    try:
        if path:
            here = Path((loaded.start.files or {})[path])
            if problem := _use_login_file(loaded, here):
                yield problem
                return
        for mechanism in dict.fromkeys(mechanisms):
            if not path and loaded.start.jvm_arguments is None and not _has_module(properties, listener, mechanism):
                continue  # it can be in a file that only the arguments of the JVM name
            name = jvm.static("org.apache.kafka.common.network.ListenerName")(listener.name)
            try:
                jvm.static(_CONTEXT).loadServerContext(name, mechanism, values)
            except Py4JJavaError as error:
                yield f"listener {listener.name}: {loaded.sentence(error)}"
    finally:
        system.clearProperty(LOGIN_FILE)
        jvm.packages.javax.security.auth.login.Configuration.setConfiguration(None)


def _has_module(properties: Mapping[str, str], listener: Endpoint, mechanism: str) -> bool:
    return f"{listener.prefix}{mechanism.lower()}.sasl.jaas.config" in properties


def _use_login_file(loaded: _Loaded, here: Path) -> str:
    """Make the JAAS file of the node that of this JVM; return why it cannot be read, in Java's words."""
    jvm, login = loaded.jvm, loaded.jvm.packages.javax.security.auth.login
    try:
        parameter = jvm.static("java.security.URIParameter")(jvm.packages.java.io.File(str(here)).toURI())
        login.Configuration.setConfiguration(login.Configuration.getInstance("JavaLoginConfig", parameter))
    except Py4JJavaError as error:
        found = _LOGIN_ERROR.search(loaded.sentence(error))
        return f"{LOGIN_FILE}={loaded.paths[str(here)]}: {found[1] if found else 'Java cannot read this file'}"
    jvm.packages.java.lang.System.setProperty(LOGIN_FILE, str(here))
    return ""
