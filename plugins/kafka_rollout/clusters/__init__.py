"""Inventory files, discovery of a running cluster.

Outside: inventory files, brokers of the cluster to discover.
"""
