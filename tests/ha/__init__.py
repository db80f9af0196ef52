"""High availability: two replicas of each service and three NATS servers, killed and paused under load, and measured.

`make ha` runs it for long and prints figures; the test here is a short one of the same with every check.
"""
