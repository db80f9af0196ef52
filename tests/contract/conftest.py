from tests.kit.clusters import api, api_server, cluster_server, embedded_server, real_server, under_test

__all__ = ["api", "api_server", "cluster_server", "embedded_server", "real_server", "under_test"]
