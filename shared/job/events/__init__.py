"""Every type of event, one file for each author; `catalog` lists them with the authors that may write them.

A fact says what a service saw or what happened, a decision what a service decided.  Stored events are read for ever:
a new field has a default; no field is ever renamed, retyped or removed; no tag is used twice.
A new type takes its class in the union of its author, from which `catalog` is made, a case in `evolve.py`, a decision
one in `because.py`, and an example in `tests/job/examples.py`.  mypy and `tests/job/test_events.py` name what lacks.
Events have keys, numbers, reasons (CamelCase words) and bounded messages of the kube-scheduler, the kubelet, the API
server and a failed container (`docs/adr/0012`), never an object, an environment value, a script or a secret.
"""
