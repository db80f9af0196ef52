"""A node without a container runtime: every pod of it runs as real processes on this Linux machine.

It plays the kubelet: it registers a Node, watches its pods, runs them, writes their status, and serves logs and exec
over the kubelet's API.  It uses only the ordinary Kubernetes API, and works with any API server.

Two processes do this.  The *agent* (`agent.py`) has the event loop and talks to the API server; the *zygote*
(`zygote.py`) is small and single-threaded, lives in namespaces of its own and forks the containers.  Everything that
a pod needs (processes, mounts, networks) exists only below the zygote, and the kernel ends it with the agent.

It does not have: file systems of images (containers see the host's files, read-only), ClusterIPs (a Service's name
resolves to its pods), a route out of the pods' network except to the API server, persistent volumes other than folders
of this machine, resource limits, users other than root unless the agent is root, seccomp profiles, network policies,
liveness and startup probes, life-cycle hooks, sidecars among init containers, rotation of logs, attach, port-forward.
Pods of two nodes do not reach each other.
"""
