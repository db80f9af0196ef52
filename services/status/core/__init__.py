"""The status service's rules: phases, status documents and Kubernetes Events.  Pure."""
