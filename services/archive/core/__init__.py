"""The rules of the archiver: what comes next for a sealed history, and what retention takes away.  Pure."""
