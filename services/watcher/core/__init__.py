"""The watcher's rules: what a job's facts and open questions are, given the cache and the answers.  Pure.

No file here knows a loop, a client, a clock or a log line; an import rule holds every `core` of a service to that.
"""
