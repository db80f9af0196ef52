"""Known-bad behaviours of operators, planted as text into a copy of the tree: the tests reject each of them.

`patches.py` has those that FAULTS, section 7, names; `generated.py` makes others from the policies.
`python -m tests.mutants` plants one after the other, and lets first the simulation and then the named tests look.
"""
