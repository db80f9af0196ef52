"""The rules of the audit service: what counts as a claim, and which change it is about.  Pure."""
