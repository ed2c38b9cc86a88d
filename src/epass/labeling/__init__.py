"""Labeling in a loop: what a person says about a folder of photos, and what a model makes of it."""
