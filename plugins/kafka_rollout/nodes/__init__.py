"""Runtimes: local processes, systemd units on hosts, none; metrics agents.

Outside: processes, hosts over SSH, metrics agents over HTTP.
"""
