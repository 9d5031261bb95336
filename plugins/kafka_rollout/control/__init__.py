"""Who may change the cluster, and when: the lock with its fence, approvals, pauses and windows.

Begin with:
- `lock.acquire_lock`: one change at a time per cluster
- `lock.fence_cluster_ports`: the check of the lock at each change
- `approval.require_approval`: the check of the approval before each action
- `approval.record_approval`: records an answer
- `holds.check_begin`: whether the next node step can begin now
"""
