"""Receives batches of `muster forward`: believes signed requests alone, and takes each event once."""

import base64
import hashlib
import hmac
import json
import os
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

SECRET = base64.b64decode(os.environ["SECRET"].removeprefix("whsec_"))
seen = set()


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        number, moment = self.headers["webhook-id"], self.headers["webhook-timestamp"]
        proof = hmac.new(SECRET, f"{number}.{moment}.".encode() + body, hashlib.sha256).digest()
        wanted = "v1," + base64.b64encode(proof).decode()
        fresh = abs(time.time() - int(moment)) < 300
        if not (fresh and hmac.compare_digest(wanted, self.headers["webhook-signature"])):
            self.send_error(401)
            return
        for event in json.loads(body):
            if event["id"] not in seen:
                seen.add(event["id"])
                print(event["sequence"], event["subject"], event["type"], flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Receiver).serve_forever()
