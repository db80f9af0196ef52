"""A small Kubernetes API server for development and tests, in one process, with a durable store.

It serves what kubectl (1.28 or newer), Muster's services and a node agent need, in the words of the real server:
built-in kinds, custom resources with schemas and CEL rules in every served version, watches, patches, tables, garbage
collection, binding of pods, and logs and exec through the node.  Whenever it differs from the real server, the real
one is right; `devcluster/README.md` lists the differences that are left.

What it does not do, and answers with a clear error or simply leaves out:

- authorization: every user that has a token may do everything;
- admission webhooks, conversion webhooks, quotas, limit ranges, service account tokens;
- field ownership beyond the `managedFields` of custom resources: server-side apply merges, never conflicts and never
  removes;
- the validation of built-in kinds and of definitions beyond what this server and its nodes work with;
- aggregated APIs at other Services than `ExternalName`;
- ClusterIPs, `attach`, `portforward`, `binding`, SPDY, answers in protobuf, aggregated discovery, watch lists.

`devcluster.cluster` runs it together with nodes.
"""
