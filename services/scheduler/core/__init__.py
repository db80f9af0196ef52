"""The scheduler's rules: which places exist, and which pods and Services to make or remove.  Pure."""
