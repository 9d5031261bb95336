"""The command line.

Outside: the terminal.
"""
