"""A Java process that Python calls through py4j, to use Kafka's own classes.

One process per release, because the classes of two releases cannot share a class path. It listens only on loopback,
requires a token that never appears in its arguments, and exits when its standard input, our pipe, is closed.

A start costs half a second of processor time and more, so within `keep_jvms` a process serves one block after the
other, as long as none of them left it changed.
"""

from __future__ import annotations

import os
import subprocess
import zipfile
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, OutputConsumer, find_jar_path
from py4j.protocol import Py4JError, Py4JJavaError

from kafka_rollout.base.errors import FatalError, RefusedError, RolloutError, UserError
from kafka_rollout.base.system.sessions import child_environment
from kafka_rollout.releases.jvm.java import java_binary

OPTIONS = ("-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_STOP_S = 10.0
_ITERATOR = ("hasNext", "next")
# The first use of these classes sets the same value: java.util.TimeZone, and X509Util of ZooKeeper (KafkaConfig 3.x).
_SET_ONCE = ("user.timezone", "jdk.tls.rejectClientInitiatedRenegotiation")


class MissingClassError(FatalError):
    """The release does not have a class that the call needs, or has changed it."""


@dataclass(frozen=True, slots=True)
class Jvm:
    """A running gateway. `packages` starts a qualified name: `jvm.packages.java.util.HashMap()`."""

    gateway: JavaGateway
    libs: Path
    """The folder of the jars on its class path."""

    @property
    def packages(self) -> Any:
        return self.gateway.jvm

    def find_class(self, name: str) -> Any | None:
        """java.lang.Class of a name, None when the class path has none (py4j itself would return a package)."""
        try:
            return self.packages.java.lang.Class.forName(name)
        except Py4JJavaError as error:
            if java_class(error) in ("java.lang.ClassNotFoundException", "java.lang.NoClassDefFoundError"):
                return None
            raise

    def static(self, name: str) -> Any:
        """py4j's view of a class by its qualified name: call it to construct, its attributes are static methods."""
        view = self.packages
        for part in name.split("."):
            view = getattr(view, part)
        return view

    def locate(self, *names: str) -> str:
        """Return the first of these qualified names that exists: Kafka moves classes between releases.

        If none exists, the only class of Kafka's jars with the simple name of the first.
        """
        for name in names:
            if self.find_class(name) is not None:
                return name
        found = _classes_called(self.libs, names[0].rpartition(".")[2])
        if len(found) == 1:
            return found[0]
        raise MissingClassError(
            f"The jars contain none of {', '.join(names)}.", remedy="Add the class's name in this release."
        )

    def moved(self, *names: str) -> Any:
        """`static` of the class that `locate` finds."""
        return self.static(self.locate(*names))

    def instance(self, name: str) -> Any:
        """A new object by the constructor without parameters; reaches nested classes (`Outer$Inner`)."""
        constructor = self.packages.java.lang.Class.forName(name).getDeclaredConstructor(
            self.array(self.packages.java.lang.Class, [])
        )
        constructor.setAccessible(True)
        return constructor.newInstance(self.array(self.packages.java.lang.Object, []))

    def array(self, of: Any, values: list[Any]) -> Any:
        array = self.gateway.new_array(of, len(values))
        for index, value in enumerate(values):
            if value is not None:  # a new array has nulls; each assignment is two calls of Java
                array[index] = value
        return array

    def call(self, method: Any, target: Any, *arguments: Any) -> Any:
        """Invoke a java.lang.reflect.Method; `target` is None for a static one."""
        return method.invoke(target, self.array(self.packages.java.lang.Object, list(arguments)))

    def iterate(self, iterator: Any) -> Iterator[Any]:
        """The elements of a java.util.Iterator. py4j's own iteration treats every exception as the end."""
        interface = self.packages.java.lang.Class.forName("java.util.Iterator")
        has_next, next_ = (
            interface.getMethod(name, self.array(self.packages.java.lang.Class, [])) for name in _ITERATOR
        )
        while self.call(has_next, iterator):
            yield self.call(next_, iterator)


def _classes_called(libs: Path, simple_name: str) -> list[str]:
    """Return the qualified names of Kafka's own classes with this simple name."""
    end = f"/{simple_name}.class"
    found: set[str] = set()
    for jar in libs.glob("kafka*.jar"):
        with zipfile.ZipFile(jar) as archive:
            found.update(name for name in archive.namelist() if name.endswith(end) and not name.startswith("META-INF/"))
    return sorted(name.removesuffix(".class").replace("/", ".") for name in found)


def java_class(error: Py4JJavaError) -> str:
    return str(error.java_exception.getClass().getName())


def root_cause(error: Py4JJavaError) -> Any:
    """Return the innermost exception: reflection and Kafka's readers wrap the cause."""
    cause = error.java_exception
    while (inner := cause.getCause()) is not None:
        cause = inner
    return cause


@dataclass(frozen=True, slots=True)
class _Process:
    jvm: Jvm
    began_as: tuple[object, ...] | None
    """What `_changeable` returned before the first block; None for a process that serves one block alone."""
    closing: ExitStack


@dataclass(slots=True)
class _Kept:
    """Processes between two blocks, by folder and options."""

    waiting: dict[tuple[Path, tuple[str, ...]], _Process] = field(default_factory=dict)

    def takes_back(self, process: _Process, key: tuple[Path, tuple[str, ...]]) -> bool:
        """Return whether a process is kept: it is as it began, and none of a block within this one waits already."""
        if key in self.waiting or process.began_as is None or _changeable(process.jvm) != process.began_as:
            return False
        self.waiting[key] = process
        return True

    def close(self) -> None:
        with ExitStack() as closing:
            for process in self.waiting.values():
                closing.push(process.closing)
        self.waiting.clear()


_KEPT: ContextVar[_Kept | None] = ContextVar("kept Java processes", default=None)


@contextmanager
def keep_jvms() -> Iterator[None]:
    """Keep the processes of `run_jvm` for further blocks of this thread on the same jars; all are gone at the end."""
    if _KEPT.get() is not None:  # the block around this one ends them
        yield
        return
    kept = _Kept()
    token = _KEPT.set(kept)
    try:
        yield
    finally:
        _KEPT.reset(token)
        kept.close()


@contextmanager
def run_jvm(
    libs: Path, *, options: tuple[str, ...] = OPTIONS, plugins: Path | None = None, alone: bool = False
) -> Iterator[Jvm]:
    """Start a gateway on the jars of a folder; its process is gone when the block ends, or at the end of `keep_jvms`.

    A process is kept only if the block ended without an error (a refusal is an answer), and left the properties and the
    security providers as they were.
    `alone`: the block changes more than these, so no other block gets its process. `plugins`: a folder with more jars,
    behind those of the release; their code can change anything, so such a process is not kept either.

    Raises FatalError if the process does not start, and if it has ended when the block ends: what the block concluded
    from its last responses is then no answer.
    """
    if plugins is not None and not any(plugins.glob("*.[jJ][aA][rR]")):
        plugins = None
    kept = None if alone or plugins is not None else _KEPT.get()
    process = _take(kept, libs, options) or _start(libs, options, plugins, is_kept=kept is not None)
    with ExitStack() as closing:
        closing.push(process.closing)
        refused: RolloutError | None = None
        try:
            yield process.jvm
        except (RefusedError, UserError) as error:  # the classes answered
            refused = error
        if refused is None and not _responds(process.jvm):
            raise FatalError(
                f"The Java process for {libs} exited before it had responded to everything.",
                remedy="Check the free memory of the machine, then repeat the command.",
            )
        if kept is not None and kept.takes_back(process, (libs, options)):
            closing.pop_all()
        if refused is not None:
            raise refused


def _take(kept: _Kept | None, libs: Path, options: tuple[str, ...]) -> _Process | None:
    """Return the process that waits for such a block. One that has ended is none."""
    process = None if kept is None else kept.waiting.pop((libs, options), None)
    if process is None or _responds(process.jvm):
        return process
    process.closing.close()
    return None


def _responds(jvm: Jvm) -> bool:
    try:
        return bool(jvm.packages.java.lang.System.nanoTime())
    except Py4JError:
        return False


def _changeable(jvm: Jvm) -> tuple[object, ...] | None:
    """Return what a block can change for the next one: properties and security providers. None without a response."""
    java = jvm.packages.java
    try:
        properties = java.util.HashMap(java.lang.System.getProperties())
        for name in _SET_ONCE:
            properties.remove(name)
        providers = tuple(str(one.getName()) for one in java.security.Security.getProviders())
        return properties.hashCode(), *providers
    except Py4JError:
        return None


def _start(libs: Path, options: tuple[str, ...], plugins: Path | None, *, is_kept: bool) -> _Process:
    complaints: deque[str] = deque(maxlen=20)
    try:
        port, token, process = _launch(class_path(libs, plugins), options, complaints)
    except (OSError, ValueError) as error:  # ValueError: it exited before it printed its port
        raise FatalError(
            f"The Java process for {libs} did not start: {' '.join(complaints).strip() or error}.",
            remedy=f"Check that `{java_binary()} -version` works.",
        ) from error
    jvm = Jvm(JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token)), libs)
    with ExitStack() as closing:
        closing.callback(_end, jvm.gateway, process)
        return _Process(jvm, _changeable(jvm) if is_kept else None, closing.pop_all())


def _end(gateway: JavaGateway, process: subprocess.Popen[bytes]) -> None:
    with suppress(Exception):  # it may have exited by itself; the process is waited for below
        gateway.shutdown()
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(timeout=_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout=_STOP_S)


def class_path(libs: Path, plugins: Path | None) -> str:
    """Return the class path of a release and of plugins, which replace no class of the release."""
    return os.pathsep.join(str(folder / "*") for folder in (libs, plugins) if folder is not None)


def _launch(jars: str, options: tuple[str, ...], complaints: deque[str]) -> tuple[int, str, subprocess.Popen[bytes]]:
    """Start py4j's server; return its port, its token and its process. `complaints` receives its standard error.

    py4j's own launch_gateway would hand down the whole environment, which can contain credentials.
    """
    classpath = os.pathsep.join((jars, find_jar_path()))  # a class archive of the release fits one that begins with it
    command = [str(java_binary()), "-classpath", classpath, *options, "py4j.GatewayServer"]
    process = subprocess.Popen(
        [*command, "--die-on-broken-pipe", "--enable-auth", "0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child_environment(),
        cwd="/",
    )
    assert process.stdout is not None  # noqa: S101
    errors = OutputConsumer(complaints, process.stderr, daemon=True)
    errors.start()
    try:
        port, token = int(process.stdout.readline()), process.stdout.readline().decode().strip()
    except ValueError:
        process.wait(timeout=_STOP_S)
        errors.join(timeout=_STOP_S)
        raise
    # Kafka's logging can write to standard output: a full pipe would stop the process.
    OutputConsumer(deque(maxlen=1), process.stdout, daemon=True).start()
    return port, token, process
