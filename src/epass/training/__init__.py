"""One optimization step, the loop around it, and what both need to start, stop and go on."""
