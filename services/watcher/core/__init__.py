"""The watcher's rules: the facts and open questions of a job, given the cache and the answers.  Pure."""
