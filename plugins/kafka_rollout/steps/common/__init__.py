"""What the steps share: ports, approvals, the lock, node steps."""
