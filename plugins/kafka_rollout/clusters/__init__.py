"""Inventory files, discovery of a running cluster.

Outside: inventory files, brokers of the cluster to discover.

Begin with:
- `inventory.get_cluster`: reads one cluster of the inventory
- `inventory.list_readable_clusters`: reads all clusters
- `inventory.dump_cluster`: writes a cluster as YAML
- `entries.ServiceEntry`: how nodes are installed on their hosts
- `discovery.discover_inventory`: writes the inventory of a running cluster
- `sudoers.list_sudoers_files`: the sudoers files that the hosts need
"""
