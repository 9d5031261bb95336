"""The facts of a release, from its jars.

Outside: jars, a JVM with Kafka's classes, the catalogue's files.
"""
