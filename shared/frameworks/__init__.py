"""The frameworks, a file for each kind: from the kind's own shape to the canonical job and back.  Pure.

A framework parses a resource into a `JobSpec` or into problems, and renders pods, Services and the
status.  No other place knows a framework's fields.
"""
