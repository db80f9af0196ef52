"""The least that can stand in for a node agent: registers itself as Ready and says that its pods run."""

import base64
import json
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import yaml

NAME = "node-0"


def main(kubeconfig):
    config = yaml.safe_load(Path(kubeconfig).read_text())
    cluster = config["clusters"][0]["cluster"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)

    def call(method, path, body=None):
        headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(cluster["server"] + path, data, headers, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, context=context, timeout=5) as response:  # noqa: S310
                return json.load(response)
        except urllib.error.HTTPError as error:
            error.close()
            return {}

    call("POST", "/api/v1/nodes", {"metadata": {"name": NAME}})
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    call("PATCH", f"/api/v1/nodes/{NAME}/status", {"status": ready})
    while True:
        pods = call("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={NAME},status.phase=Pending")
        for pod in pods.get("items", []):
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/status"
            call("PATCH", path, {"status": {"phase": "Running"}})
        time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1])
