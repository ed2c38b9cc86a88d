"""A recipe becomes objects, objects become a run, a run becomes files, and a network answers."""
