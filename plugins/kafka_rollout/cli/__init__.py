"""The command line.

Outside: the terminal.

Begin with:
- `app.COMMANDS`: all commands
- `options.open_ports`: opens the ports of a cluster for a command
- `options.takes_request`: gives a command the options of a kind of run
- `run.run_procedure`: carries out a procedure from a shell
- `answers.TerminalAnswers`: approvals at the terminal
- `run.ShellServices`: scan, background processes and report of a run
- `show.say`: prints text from outside safely
"""
