"""A Kubernetes cluster for development, demonstrations and tests, in a few Python processes.

`apiserver/` is the API server, `node/` the agent that runs pods as processes; `start.py` runs both together.
They know each other only through the Kubernetes API and the kubelet's own API.
This is a tool, not a product: nothing in `services/`, `shared/` or `muster/` may need it to do its work.
"""
