"""The client of the brokers: connections, requests, administration and credentials.

Outside: the brokers' sockets, files with credentials.

Begin with:
- `requests.ClusterConnections`: connections to the nodes of a cluster
- `admin.KafkaAdmin`: the administration of a cluster
- `contents.read_inventory`: the contents of a cluster
- `coordinators.describe_groups`: groups, from the brokers that coordinate them
- `fetch.FetchSource`: reads raw batches from the brokers
- `security.client_security.ClientSecurity`: credentials and certificates of a client
"""
