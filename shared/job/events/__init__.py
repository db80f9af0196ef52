"""Every type of event, one file for each author; `catalog` lists them with the authors that may write them.

A fact says what a service saw or what happened, a decision what a service decided.  Stored events are read for ever:
a new field has a default; no field is ever renamed, retyped or removed; no tag is used twice.
A new type needs, and mypy and `tests/job/test_events.py` name each that is missing:

- its class, and its name in the union at the end of its author's file;
- a case in `shared/job/evolve.py`, and for a decision the cause that its rule returns (`Record`);
- an example in `tests/job/examples.py`, of which `REWRITE_GOLDEN=1` appends a line to `tests/histories/events.jsonl`.

Services of an older release hold a job whose history has a type that they do not know.

Events have keys, numbers, reasons (CamelCase words) and bounded messages of the kube-scheduler, the kubelet, the API
server and a failed container (`docs/adr/0012`), never an object, an environment value, a script or a secret.
"""
