"""Frameworks: one file each, from a kind's own shape to the canonical job and back.  Pure.

A framework names its kinds, parses a resource into a `JobSpec` or into problems, and renders the pods and the
objects beside them.  No other place knows a framework's fields.
"""
