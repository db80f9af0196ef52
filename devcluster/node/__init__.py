"""A node without a container runtime: every pod of it runs as real processes on this Linux machine.

It plays the kubelet: registers a Node, hears its pods, runs them, writes their status, and serves logs and exec over
the kubelet's API.  It speaks only the ordinary Kubernetes API, and never asks which server answers.

Two processes do this.  The *agent* (`agent.py`) has the event loop and talks to the API server; the *zygote*
(`zygote.py`) is small and single-threaded, lives in namespaces of its own and forks the containers.  Everything that
a pod needs (processes, mounts, networks) exists only below the zygote, and the kernel ends it with the agent.

What it does not do: images have no file systems (containers see the host's files, read-only), no ClusterIPs (a
Service's name is its pods), no way out of the pods' network but to the API server, no persistent volumes but folders of
this machine, no resource limits, no users but root unless the agent is root itself, no seccomp profiles, no network
policies, no liveness or startup probes, no life-cycle hooks, no sidecars among init containers, no rotation of logs, no
attach or port-forward.  Pods of two nodes do not reach each other.
"""
