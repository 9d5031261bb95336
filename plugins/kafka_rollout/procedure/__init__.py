"""The kinds of runs as lists of steps, and what carries them out.

Begin with:
- `step.Step`: one step of a procedure as data
- `step.Procedure`: all steps of a kind of run
- `kinds.KINDS`: the kinds of runs
- `kinds.UPGRADE`: the procedure of an upgrade
- `runner.Runner`: carries out a procedure in one process
- `rehearsal.Rehearsal`: carries it out on a copy of the cluster
- `step_lines.step_lines`: the steps of a run with their states
- `progress.Progress`: the progress of a run in lines
"""
