"""The command line: parse, call `experiment`, print."""

from .app import main

__all__ = ["main"]
