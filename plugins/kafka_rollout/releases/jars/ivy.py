"""Jars by their Maven names, fetched by the Ivy of PySpark: no Maven, no system packages."""

from __future__ import annotations

import importlib.util
import re
import shutil
import ssl
import subprocess
import tempfile
import urllib.parse
import urllib.request
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from kafka_rollout.base.errors import FatalError, TransientError
from kafka_rollout.releases.jvm.java import java_binary

# A trust store of public certificates needs a password by its format, not for a secret.
_TRUST_STORE_PASSWORD = "changeit"  # noqa: S105
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)

# A locked jar is compared with the SHA-256 of the lock. Only a release without a lock needs the repository's checksums.
_SETTINGS = """<ivysettings>
  <property name="ivy.checksums" value="{checksums}"/>
  <settings defaultResolver="repository"/>
  <caches defaultCacheDir={cache} lockStrategy="no-lock"/>
  <resolvers><ibiblio name="repository" m2compatible="true"{root}/></resolvers>
</ivysettings>
"""
_MODULE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="kafka-rollout" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>{dependencies}</dependencies>
</ivy-module>
"""


class ModulesMissingError(FatalError):
    """The repository does not have a module."""


@dataclass(frozen=True, slots=True, order=True)
class Module:
    """`group:artifact:version` with an optional `:classifier`, as Maven writes it."""

    group: str
    artifact: str
    version: str
    classifier: str = ""

    @classmethod
    def parse(cls, text: str) -> Module:
        return cls(*text.split(":"))

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}{f'-{self.classifier}' if self.classifier else ''}.jar"

    def __str__(self) -> str:
        return ":".join(filter(None, (self.group, self.artifact, self.version, self.classifier)))


def fetch(
    modules: Iterable[Module],
    folder: Path,
    *,
    transitive: bool,
    on_jar: Callable[[str], None] = lambda name: None,
    repository: str = "",
) -> tuple[Module, ...]:
    """Download the modules' jars into `folder`, flat, and with `transitive` their runtime dependencies as well.

    `repository`: URL of a Maven repository; "" is Maven Central. With `transitive`, every file is compared with the
    repository's SHA-1. `on_jar` is called with the name of each jar when its download begins. Of two versions of a
    module the newer one is used, as in Kafka's own build. Nothing is cached; a killed call leaves a temporary folder
    next to `folder`. Raises ModulesMissingError for a module that the repository does not have, TransientError if it
    does not respond, FatalError for a wrong checksum.
    """
    wanted = tuple(modules)
    with tempfile.TemporaryDirectory(prefix=".ivy-", dir=folder.parent) as name:
        work = Path(name)
        (work / "settings.xml").write_text(
            _SETTINGS.format(
                cache=quoteattr(str(work / "cache")),
                checksums="sha1" if transitive else "",
                root=f" root={quoteattr(repository)}" if repository else "",
            )
        )
        dependencies = "".join(_dependency(module, transitive=transitive) for module in wanted)
        (work / "ivy.xml").write_text(_MODULE.format(dependencies=dependencies))
        pattern = f"{work}/jars/[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"
        command = [
            str(java_binary()),
            *_java_network_options(work),
            *("-jar", str(_ivy_jar()), "-settings", str(work / "settings.xml"), "-ivy", str(work / "ivy.xml")),
            *("-types", "jar", "bundle", "-retrieve", pattern),
        ]
        _run(command, on_jar)
        return tuple(sorted(_collect(work / "jars", folder)))


def _dependency(module: Module, *, transitive: bool) -> str:
    head = (
        f"<dependency org={quoteattr(module.group)} name={quoteattr(module.artifact)} rev={quoteattr(module.version)}"
    )
    if module.classifier:
        artifact = (
            f'<artifact name={quoteattr(module.artifact)} type="jar" m:classifier={quoteattr(module.classifier)}/>'
        )
        return f'{head} transitive="false">{artifact}</dependency>'
    if transitive:
        return f'{head} conf="default-&gt;runtime,master"/>'
    return f'{head} transitive="false" conf="default-&gt;master"/>'


def _run(command: list[str], on_jar: Callable[[str], None]) -> None:
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            for line in process.stdout or ():
                lines.append(line.rstrip())
                if match := re.search(r"downloading \S+/(\S+\.jar) \.\.\.", line):
                    on_jar(match[1])
        except BaseException:
            process.kill()
            raise
    if process.returncode == 0:
        return
    text = "\n".join(lines)
    if wrong := re.search(r"invalid sha1: expected=(\w+) computed=(\w+)", text):
        # Ivy writes org.apache.kafka#kafka_2.13;4.4.0!kafka_2.13.jar
        file = re.search(r";(\S+)!(\S+)\.(jar|pom)", text[: wrong.start()].rpartition("\n")[2])
        name = f"{file[2]}-{file[1]}.{file[3]}" if file else "A file"
        raise FatalError(
            f"{name} of the jar repository does not have its published SHA-1 {wrong[1]}, but {wrong[2]}.",
            remedy="Repeat the command. If it happens again, do not trust the network.",
        )
    if "No space left on device" in text:
        raise FatalError("The disk has no space left for the jars.", remedy="Free space, then repeat the command.")
    if troubles := dict.fromkeys(re.findall(r"Server access error at url \S+ \((.+)\)", text)):
        raise TransientError(
            f"The jar repository did not respond: {'; '.join(troubles)}.",
            remedy="Check the network, its proxy and its certificates, then repeat the command.",
        )
    if missing := dict.fromkeys(re.findall(r":: (\S+): not found", text)):
        raise ModulesMissingError(
            f"The repository of the jars does not have {', '.join(missing)}.", remedy="Check that it is published."
        )
    last = next((line for line in reversed(lines) if line.strip()), "nothing")
    raise FatalError(
        f"Ivy exited with status {process.returncode}. Last output: {last.strip()}.", remedy=("Repeat the command.")
    )


def _collect(source: Path, folder: Path) -> Iterable[Module]:
    """Move group/artifact/version/file.jar flat into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for jar in source.rglob("*.jar"):
        group, artifact, version, _ = jar.relative_to(source).parts
        classifier = jar.name.removeprefix(f"{artifact}-{version}").removesuffix(".jar").lstrip("-")
        shutil.move(jar, folder / jar.name)
        yield Module(group, artifact, version, classifier)


def _ivy_jar() -> Path:
    # Looked up, not imported: only the Spark jobs import pyspark.
    spec = importlib.util.find_spec("pyspark")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    for folder in folders:
        if jars := sorted(Path(folder).glob("jars/ivy-*.jar")):
            return jars[-1]
    raise FatalError(
        "PySpark's Ivy was not found among the Python packages.",
        remedy="Install kafka-rollout[spark], or run `make setup`.",
    )


def _java_network_options(work: Path) -> list[str]:
    """Java options with the network settings of Python: the system's trusted certificates and its proxy."""
    options = []
    if bundle := system_certificates():
        store = work / "trust.p12"
        store.write_bytes(_trust_store(bundle))
        options += [
            f"-Djavax.net.ssl.trustStore={store}",
            "-Djavax.net.ssl.trustStoreType=PKCS12",
            f"-Djavax.net.ssl.trustStorePassword={_TRUST_STORE_PASSWORD}",
        ]
    if proxy := urllib.request.getproxies().get("https"):
        address = urllib.parse.urlsplit(proxy)
        options += [f"-Dhttps.proxyHost={address.hostname}", f"-Dhttps.proxyPort={address.port or 3128}"]
    return options


def system_certificates() -> Path | None:
    """The bundle of certificates that OpenSSL trusts on this machine ($SSL_CERT_FILE first), if there is one."""
    paths = ssl.get_default_verify_paths()
    candidates = [paths.cafile, f"{paths.capath}/ca-certificates.crt" if paths.capath else None, *_BUNDLES]
    return next((Path(path) for path in candidates if path and Path(path).is_file()), None)


def _trust_store(bundle: Path) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

    entries = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an old root's odd serial number is not this tool's to report
        for number, pem in enumerate(_PEM.findall(bundle.read_bytes())):
            try:
                certificate = x509.load_pem_x509_certificate(pem)
            except ValueError:
                continue  # a malformed root certificate is skipped
            entries.append(pkcs12.PKCS12Certificate(certificate, f"ca-{number}".encode()))
    return pkcs12.serialize_java_truststore(entries, BestAvailableEncryption(_TRUST_STORE_PASSWORD.encode()))
