"""The archiver moves what is over out of the log: it copies a sealed history, reads the copy back, and purges.

Hears: `JobSealed`, and the events of that job.
Says: messages of the archive.  It writes no event.
Owns: the archive and its retention; with the administrator it alone purges events.
Not here: when a history is sealed, which the status service decides.  Killed at any step, the next start goes on.
"""
