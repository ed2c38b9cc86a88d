"""The command line: parse, call `app`, print."""

from __future__ import annotations

import sys

from ..machine.signals import exit_code, polite_ends


def main() -> None:
    """Run the command line; whoever stops it while it is still being loaded gets a sentence, too."""
    try:
        with polite_ends():
            from .app import main as run

            run()
    except KeyboardInterrupt as stopped:
        print("Stopped: nothing more is done.", file=sys.stderr)
        sys.exit(exit_code(stopped))
