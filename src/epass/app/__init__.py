"""The application: one function for each thing a person can ask for.

A function takes what a person would say (paths, names, numbers), refuses what cannot work, and yields events. The faces
of the package (command line, estimator, studio) show these and decide nothing.
"""
