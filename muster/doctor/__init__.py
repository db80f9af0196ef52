"""`muster doctor`: an installation examined from outside, one finding a line, with what mends it.

It hears: the environment, as every command; the API server and the log with the rights of the person who runs it.
It says: findings (`findings.py`), each of one check, to people as text and to programs as one JSON document.
It owns nothing and changes nothing: reviews of rights are questions, and the log is only read.

`looks_at_log.py` and `looks_at_cluster.py` ask, bounded in time, each part failing alone; what the answers mean is
said by pure rules: `versions.py`, `definitions.py`, `rights.py`, `streams.py`, `services.py`, `jobs.py`, `clocks.py`.
`command.py` has both looked at together and prints what came out.

What a service itself has to have before it begins is not judged here but in `shared.cluster.examination` and
`shared.eventlog.setup`: the services ask them too.
"""
