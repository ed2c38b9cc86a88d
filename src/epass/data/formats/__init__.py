"""Readers of the original files of well-known data sets."""
