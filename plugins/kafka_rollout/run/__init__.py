"""The history of a run: events, conclusions from them, approvals and services.

Begin with:
- `events.Event`: one event of the history
- `events.Approval`: a decision of a named approver
- `events.events_of`: the events of one class
- `ports.RunStore`: what is stored of a run
- `ports.ChangeLock`: one change at a time per cluster
- `ports.Answers`: the answers of approvers
- `projections.nodes.has_stopped_nodes`: an example of a conclusion from the events
- `background.BackgroundProcess`: the row of a background process
- `store.opening.open_run`: opens the history of a run
- `store.leases.SqlChangeLock`: the lock as a lease in the database
"""
