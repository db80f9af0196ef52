"""What the four services have in common: the job, the log, the cluster, the runtime of a service.

Nothing here decides for a service. `shared.job` and `shared.frameworks` are pure; `shared.eventlog` and
`shared.cluster` are the two ports, each with its adapters; `shared.runtime` joins them.
"""
