"""`muster doctor`: examines an installation from outside; one finding a line, with its remedy.

It reads the environment, as every command, and the API server and the log with the rights of the person who runs it.
It prints findings (`findings.py`), each of one check, as text for people or as one JSON document for programs.
It changes nothing: reviews of rights only ask, and the log is only read.

`log_examination.py` and `cluster_examination.py` ask the questions; each part has a time limit and fails alone.
Pure rules judge the answers: `servers.py`, `definitions.py`, `rights.py`, `policies.py`, `log.py`.
`command.py` runs both at the same time and prints the findings.

The requirements of a service's start are in `shared.cluster.examination` and `shared.eventlog.setup`, because the
services check them too.
"""
