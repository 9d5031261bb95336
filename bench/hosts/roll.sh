#!/bin/bash
# The roll as an operator writes it: roll.sh PYTHON INVENTORY SSH_CONFIG TARGET NODE=HOST...
# Prints a line "phase begin end" (epoch seconds) after each phase of a node.
set -euo pipefail
python=$1 inventory=$2 config=$3 target=$4
shift 4
gate=$(dirname "$0")/gate.py
state=$(mktemp -d)
trap 'rm -r "$state"' EXIT

on() { ssh -F "$config" -o LogLevel=ERROR "$@"; }
timed() {
  local phase=$1 began=$EPOCHREALTIME
  shift
  "$@"
  echo "$phase $began $EPOCHREALTIME"
}

for pair in "$@"; do
  node=${pair%%=*} host=${pair#*=}
  timed "gate before" "$python" "$gate" before "$inventory" "$config" "$node" "$target" "$state/$node"
  timed stop on "$host" sudo systemctl stop kafka.service
  timed install on "$host" sudo ln -sfn "/opt/kafka_2.13-$target" /opt/kafka
  timed start on "$host" sudo systemctl start kafka.service
  timed "gate after" "$python" "$gate" after "$inventory" "$config" "$node" "$target" "$state/$node"
done
