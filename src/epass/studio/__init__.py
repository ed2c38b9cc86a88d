"""The page in the browser: photos are labeled, a model learns beside it, and both are looked at.

This face holds no decision: what is labeled, learned and run is in `labeling` and `app`. Here requests become calls,
and what happens becomes events of a stream.
"""
