"""Nodes as systemd units on hosts, over SSH."""
