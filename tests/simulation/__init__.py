"""The whole system under faults, deterministic: real services on a virtual clock, from one seed.

`plan.py` says what happens in a run, `run.py` lets it happen, `invariants.py` checks what must hold.
"""
