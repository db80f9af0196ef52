"""Attacks on resources: what each process holds meanwhile, whether it is ready, and how long another tenant waits."""
