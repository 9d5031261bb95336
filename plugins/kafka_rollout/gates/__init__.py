"""Conditions of nodes, controllers, coordinators and the cluster."""
