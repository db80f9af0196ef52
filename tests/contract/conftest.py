from tests.kit.nats import nats_cluster, nats_server

__all__ = ["nats_cluster", "nats_server"]
