"""Runs of the command, on Lightning: names become objects, a run has a folder, and whatever kills it, it resumes.

May import every other room; only the command line imports it.
"""
