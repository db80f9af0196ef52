"""A Kubernetes cluster for development, demonstrations and tests, in a few Python processes.

`apiserver/` is the API server, `node/` the agent that runs pods as processes; `start.py` runs both together.
They talk only through the Kubernetes API and the kubelet's own API.
It is a tool: of the product, only the demo and the development commands of `muster/` import it.
"""
