"""Keystores, truststores and login modules of a node, loaded by a release's own classes as a starting node does.

Source: ChannelBuilders.create, which SocketServer and the clients of a broker call for each listener: SslFactory builds
the SSL engine, and JaasContext reads the login modules. Nothing is connected and nobody logs in.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

from kafka_rollout.metadata_log.classes.tls import ask, presented_alias
from kafka_rollout.model.configs import unresolved_settings
from kafka_rollout.model.listeners import Listener, find_listeners
from kafka_rollout.model.starts import (
    LOGIN_FILE,
    LOGIN_MODULES,
    FileRemark,
    NodeStart,
    login_file,
    named_files,
    properties_of,
)
from kafka_rollout.releases.jvm.jvm import Jvm

_FACTORY = "org.apache.kafka.common.security.ssl.SslFactory"
_CONTEXT = "org.apache.kafka.common.security.JaasContext"
_X509, _SIGNATURE = "java.security.cert.X509Certificate", "java.security.Signature"
# Without what Java found in place of it, which can be a password.
_LOGIN_ERROR = re.compile(r"(Line \d+: expected \[[^\]]*\]|No such file or directory)")
_SIGNATURES = {"RSA": "SHA256withRSA", "EC": "SHA256withECDSA", "EdDSA": "EdDSA", "DSA": "SHA256withDSA"}


@dataclass(frozen=True, slots=True)
class _Loaded:
    jvm: Jvm
    config: Any
    """KafkaConfig whose paths are those of this machine."""
    start: NodeStart
    paths: Mapping[str, str]
    """Path on this machine → in the file."""

    def values(self, listener: Listener) -> Any:
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


_Seen = str | FileRemark
"""Why the node would not start, or a remark with which it does."""


def with_local_paths(start: NodeStart) -> dict[str, str]:
    """Return the configuration with the paths of this machine in place of those that it names."""
    files = start.files or {}
    local = {key: files[path] for key, path in named_files(start.properties).items() if path in files}
    return {**start.properties, **local}


def find_start_problems(jvm: Jvm, config: Any, start: NodeStart) -> tuple[tuple[str, ...], tuple[FileRemark, ...]]:
    """Return why the node would not start because of a file or a login module, and remarks about such files. `config`:
    KafkaConfig of `with_local_paths`. Nothing is said of a listener whose files this process cannot read, or whose
    values a config provider has."""
    seen = tuple(dict.fromkeys(_look(jvm, config, start)))
    rejected = tuple(one for one in seen if isinstance(one, str))
    return rejected, tuple(one for one in seen if isinstance(one, FileRemark))


def _look(jvm: Jvm, config: Any, start: NodeStart) -> Iterator[_Seen]:
    unresolved = set(unresolved_settings(start.properties))
    loaded = _Loaded(jvm, config, start, {here: there for there, here in (start.files or {}).items()})
    for listener in find_listeners(start.properties).all:
        if listener.uses_tls and not unresolved & listener.lines(start.properties, "ssl.").keys():
            yield from _tls_problems(loaded, listener)
        if listener.uses_sasl and not any(key.startswith((listener.prefix, "sasl.")) for key in unresolved):
            yield from _login_problems(loaded, listener)


def _tls_problems(loaded: _Loaded, listener: Listener) -> Iterator[_Seen]:
    stores = {
        line[1]
        for name in ("ssl.keystore.location", "ssl.truststore.location")
        if (line := listener.line(loaded.start.properties, name)) is not None
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
            for seen in _of_keystore(loaded, listener, engines, store):
                start = f"listener {listener.name}: "
                yield start + seen if isinstance(seen, str) else replace(seen, sentence=start + seen.sentence)
    finally:
        engines.close()


def _of_keystore(loaded: _Loaded, listener: Listener, engines: Any, store: Any) -> Iterator[_Seen]:
    """Yield why no client could use the certificate that the listener presents. Kafka itself tries only that of the
    listener between brokers. What the listener does not present, no client sees."""
    jvm = loaded.jvm
    aliases = [alias for alias in _elements(store.aliases()) if store.isKeyEntry(alias)]
    presented = aliases[0] if len(aliases) == 1 else None
    if len(aliases) > 1:
        server = engines.sslEngineFactory().createServerSslEngine("localhost", 0)
        presented = presented_alias(jvm, server, store, aliases)
    ended: dict[str, str] = {}
    for alias in aliases:
        chain = list(store.getCertificateChain(alias) or ())
        if chain and (sentence := _end(jvm, chain[0])):
            ended[alias] = sentence
        if alias == presented:
            for sentence in filter(None, (_end(jvm, certificate) for certificate in chain[1:])):
                yield FileRemark(f"{sentence}: it is of an authority, of which a client needs a valid one")
            if chain and not _belongs(loaded, listener, store, alias, chain[0]):
                yield "the key of its keystore does not belong to the certificate"
    for alias, sentence in ended.items():
        if alias == presented or len(ended) == len(aliases):
            yield sentence
        elif presented is None:
            yield FileRemark(f"{sentence}: it is unknown whether it presents it", is_unknown=True)
        else:
            yield FileRemark(f"{sentence}: it presents the entry {presented}, and not {alias}")


def _end(jvm: Jvm, certificate: Any) -> str:
    """Return what is wrong with a certificate that has ended; empty for another one."""
    ends_at = ask(jvm, _X509, certificate, "getNotAfter")
    if ends_at.getTime() > time.time() * 1000:
        return ""
    name = ask(jvm, _X509, certificate, "getSubjectX500Principal").getName()
    return f"the certificate {name} of its keystore ended at {ends_at.toInstant().toString()}"


def _elements(enumeration: Any) -> Iterator[str]:
    while enumeration.hasMoreElements():
        yield str(enumeration.nextElement())


def _belongs(loaded: _Loaded, listener: Listener, store: Any, alias: str, certificate: Any) -> bool:
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
    public = ask(jvm, "java.security.cert.Certificate", certificate, "getPublicKey")
    algorithms = [str(ask(jvm, "java.security.Key", one, "getAlgorithm")) for one in (key, public)]
    if algorithms[0] != algorithms[1]:
        return False
    if algorithms[0] not in _SIGNATURES:
        return True
    signature = jvm.packages.java.security.Signature.getInstance(_SIGNATURES[algorithms[0]])
    probe = b"kafka-rollout"
    try:
        ask(jvm, _SIGNATURE, signature, "initSign", ("java.security.PrivateKey", key))
        ask(jvm, _SIGNATURE, signature, "update", ("[B", probe))
        signed = ask(jvm, _SIGNATURE, signature, "sign")
        ask(jvm, _SIGNATURE, signature, "initVerify", ("java.security.PublicKey", public))
        ask(jvm, _SIGNATURE, signature, "update", ("[B", probe))
        return bool(ask(jvm, _SIGNATURE, signature, "verify", ("[B", signed)))
    except Py4JJavaError:
        return False


def _characters(jvm: Jvm, text: str) -> Any:
    return jvm.array(jvm.packages.char, list(text))


def _login_problems(loaded: _Loaded, listener: Listener) -> Iterator[str]:
    """Yield what JaasContext.load refuses. It reads the JAAS file only for a mechanism without a line of its own.

    The properties of the node's JVM decide about the modules in the file. Those in lines are another check.
    """
    jvm, arguments = loaded.jvm, loaded.start.jvm_arguments
    path, values = login_file(arguments), loaded.values(listener)
    here = (loaded.start.files or {}).get(path)
    lines = {one: values.get(f"{one.lower()}.sasl.jaas.config") is not None for one in listener.login_mechanisms}
    can_read_file = arguments is not None and (here is not None or not path)
    if here is not None and not all(lines.values()) and (problem := _login_file_problem(loaded, Path(here))):
        yield problem
        can_read_file = False
    properties = {} if here is None else {LOGIN_FILE: here}
    own = {name: value for name, value in properties_of(arguments).items() if name in LOGIN_MODULES}
    name = jvm.static("org.apache.kafka.common.network.ListenerName")(listener.name)
    for mechanism, has_line in lines.items():
        if has_line or can_read_file:
            more = dict.fromkeys(LOGIN_MODULES[:1], "") if has_line else own
            with _properties(jvm, properties | more):
                try:
                    jvm.static(_CONTEXT).loadServerContext(name, mechanism, values)
                except Py4JJavaError as error:
                    yield f"listener {listener.name}: {loaded.sentence(error)}"


@contextmanager
def _properties(jvm: Jvm, properties: Mapping[str, str]) -> Iterator[None]:
    """Set properties of this JVM during the block. Java reads its JAAS file again in the block, and after it."""
    system, login = jvm.packages.java.lang.System, jvm.packages.javax.security.auth.login
    before = {name: system.getProperty(name) for name in properties}
    login.Configuration.setConfiguration(None)
    for name, value in properties.items():
        system.setProperty(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                system.clearProperty(name)
            else:
                system.setProperty(name, value)
        login.Configuration.setConfiguration(None)


def _login_file_problem(loaded: _Loaded, here: Path) -> str:
    """Return why Java cannot read the JAAS file, in its words; empty if it can."""
    jvm, login = loaded.jvm, loaded.jvm.packages.javax.security.auth.login
    try:
        parameter = jvm.static("java.security.URIParameter")(jvm.packages.java.io.File(str(here)).toURI())
        login.Configuration.getInstance("JavaLoginConfig", parameter)
    except Py4JJavaError as error:
        found = _LOGIN_ERROR.search(loaded.sentence(error))
        return f"{LOGIN_FILE}={loaded.paths[str(here)]}: {found[1] if found else 'Java cannot read this file'}"
    return ""
