"""Start scripts that do what those of Kafka's archives do: two scripts with defaults of variables, a folder of logs,
and the log of the garbage collection in it."""

from __future__ import annotations

from kafka_rollout.releases.facts import Release

SERVER_START = """\
#!/bin/bash
base_dir=$(dirname $0)
EDIT
if [ -z "$KAFKA_LOG4J_OPTS" ]; then
    export KAFKA_LOG4J_OPTS="LOGGING"
fi
if [ "x$KAFKA_HEAP_OPTS" = "x" ]; then
    export KAFKA_HEAP_OPTS="-Xmx1G -Xms1G"
fi
EXTRA_ARGS=${EXTRA_ARGS-'-name kafkaServer -loggc'}
exec $base_dir/kafka-run-class.sh $EXTRA_ARGS kafka.Kafka "$@"
"""
RUN_CLASS = """\
#!/bin/bash
should_include_file() {
  file=$1
  if [ -z "$(echo "$file" | grep -E '(-test|-sources)\\.jar$')" ] ; then
    return 0
  else
    return 1
  fi
}
base_dir=$(dirname $0)/..
shopt -s nullglob
clients_lib_dir=$(dirname $0)/../clients/build/libs
for file in "$clients_lib_dir"/kafka-clients*.jar;
do
  if should_include_file "$file"; then
    CLASSPATH="$CLASSPATH":"$file"
  fi
done
for dir in "$base_dir"/tools/build/dependant-libs-*;
do
  CLASSPATH="$CLASSPATH:$dir/*"
done
for file in "$base_dir"/libs/*;
do
  if should_include_file "$file"; then
    CLASSPATH="$CLASSPATH":"$file"
  fi
done
shopt -u nullglob
CLASSPATH=${CLASSPATH#:}
(( WINDOWS_OS_FORMAT )) && CLASSPATH=$(cygpath --path --mixed "${CLASSPATH}")
if [ -z "$KAFKA_JMX_OPTS" ]; then
  KAFKA_JMX_OPTS="-Dcom.sun.management.jmxremote=true -Dcom.sun.management.jmxremote.ssl=false "
fi
if [  $JMX_PORT ]; then
  KAFKA_JMX_OPTS="$KAFKA_JMX_OPTS -Dcom.sun.management.jmxremote.port=$JMX_PORT "
fi
if [ "x$LOG_DIR" = "x" ]; then
  LOG_DIR="$base_dir/logs"
fi
if [ ! -d "$LOG_DIR" ]; then
  mkdir -p "$LOG_DIR"
fi
KAFKA_LOG4J_CMD_OPTS="-Dkafka.logs.dir=$LOG_DIR $KAFKA_LOG4J_OPTS"
if [ -z "$JAVA_HOME" ]; then
  JAVA="java"
else
  JAVA="$JAVA_HOME/bin/java"
fi
if [ -z "$KAFKA_JVM_PERFORMANCE_OPTS" ]; then
  KAFKA_JVM_PERFORMANCE_OPTS="-server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -Djava.awt.headless=true"
fi
while [ $# -gt 0 ]; do
  case $1 in
    -name) DAEMON_NAME=$2; shift 2;;
    -loggc)
      if [ -z "$KAFKA_GC_LOG_OPTS" ]; then
        GC_LOG_ENABLED="true"
      fi
      shift;;
    *) break;;
  esac
done
if [ "x$GC_LOG_ENABLED" = "xtrue" ]; then
  KAFKA_GC_LOG_OPTS="-Xlog:gc*:file=$LOG_DIR/$DAEMON_NAME-gc.log:time,tags:filecount=10,filesize=100M"
fi
exec "$JAVA" $KAFKA_HEAP_OPTS $KAFKA_JVM_PERFORMANCE_OPTS $KAFKA_GC_LOG_OPTS $KAFKA_JMX_OPTS \\
  $KAFKA_LOG4J_CMD_OPTS -cp "$CLASSPATH" $KAFKA_OPTS "$@"
"""


def server_start(release: Release, edit: str = "") -> str:
    """Return kafka-server-start.sh of a release. `edit`: lines of an operator."""
    option = "2.configurationFile=" if release.major >= 4 else ".configuration=file:"
    name = "log4j2.yaml" if release.major >= 4 else "log4j.properties"
    return SERVER_START.replace("EDIT\n", f"{edit}\n" if edit else "").replace(
        "LOGGING", f"-Dlog4j{option}$base_dir/../config/{name}"
    )
