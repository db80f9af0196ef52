"""The audit service writes down who made a change, from the audit events that API servers send to its webhook.

Hears: audit events, late, twice and out of order; and the changes that the watcher recorded.
Says: `ChangeAttributed`, for a change that matches one write exactly: the uid, and the version that the write made.
Owns nothing: what it holds in memory is lost with it, and the changes stay without a name.
Not here: any guess.  No service waits for it or reads what it writes; people do.
"""
