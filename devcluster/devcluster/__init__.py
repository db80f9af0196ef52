"""A Kubernetes cluster for development, demonstrations and tests, in a few Python processes.

`apiserver/` is the API server, `node/` the agent that runs pods as processes; `cluster.py` runs both together, and
`controlplane.py` and `realnode/` run the real programs.  They talk only through the Kubernetes API and the kubelet's
own API.  Others import the modules of this folder, `binaries/` and `realnode/`, but not `apiserver/` and `node/`.
It is a distribution of its own, and imports nothing of Muster.
"""
