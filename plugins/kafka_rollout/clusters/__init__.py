"""Inventory files, discovery of a running cluster.

Outside: inventory files, what was last seen of the clusters, brokers of the cluster to discover.

Begin with:
- `inventory.get_cluster`: reads one cluster of the inventory
- `inventory.list_readable_clusters`: reads all clusters
- `inventory.dump_cluster`: writes a cluster as YAML
- `last_seen.read_last_seen`: the release that a cluster ran when it was last observed
- `entries.ServiceEntry`: how nodes are installed on their hosts
- `discovery.discover_inventory`: writes the inventory of a running cluster
- `sudoers.list_sudoers_files`: the sudoers files that the hosts need
"""
