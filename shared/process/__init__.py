"""A service as a process of the operating system.

`main.py` is the process, `settings.py` its settings, `health.py` checks its log and its cluster and is what
it says about itself, `serving.py` answers probes and scrapers, `bounds.py` and `http.py` bound what the clients of a
port use up, `kept_connection.py` is the log of a process that works on without one.
"""
