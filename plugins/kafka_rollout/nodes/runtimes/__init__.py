"""How the processes of nodes are stopped, installed and started."""
