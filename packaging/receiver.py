#!/usr/bin/env python3
"""A receiver of webhooks for tests. It verifies the signature, prints each call and replies.

    python3 receiver.py [PORT]

The secret is in the file that WEBHOOK_SECRET_FILE names, or else in WEBHOOK_SECRET, or else in the file `secret`.
If the working directory has a file `broken`, each call gets the status in this file, or 500 if it is empty. The program
needs only the standard library. Do not use it in production, except for its verification of signatures.
"""

import base64
import hashlib
import hmac
import http.server
import json
import os
import sys
import time

TOLERANCE_S = 300
MAX_BODY_BYTES = 1 << 20


def is_genuine(secret, headers, body):
    """Returns whether the body was signed with this secret (Standard Webhooks 1.0) within the last five minutes."""
    name, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not at.isdigit() or abs(time.time() - int(at)) > TOLERANCE_S:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signature = hmac.new(key, f"{name}.{at}.".encode() + body, hashlib.sha256).digest()
    expected = "v1," + base64.b64encode(signature).decode()
    # During a change of the secret there are two signatures. One of them must be valid.
    return any(hmac.compare_digest(expected, sent) for sent in headers.get("webhook-signature", "").split())


def secret():
    """Reads a file for each call, so that a new secret applies immediately."""
    file = os.environ.get("WEBHOOK_SECRET_FILE")
    if file is None and "WEBHOOK_SECRET" in os.environ:
        return os.environ["WEBHOOK_SECRET"]
    with open(file or "secret") as file:
        return file.read().strip()


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        length = int(self.headers.get("content-length") or 0)
        if length > MAX_BODY_BYTES:
            self.close_connection = True
            return self.answer(413)
        body = self.rfile.read(length)
        status = self.status(body)
        event = json.loads(body) if status != 401 else {}
        data = event.get("data", {})
        # One write has the line and its end, because calls run in parallel.
        value = json.dumps(data.get("value"))
        print(f"{status} {data.get('key')} attempt {data.get('attempt')} {value}\n", end="", flush=True)
        self.answer(status)

    def status(self, body):
        if not is_genuine(secret(), self.headers, body):
            return 401
        try:
            with open("broken") as file:
                return int(file.read() or 500)
        except FileNotFoundError:
            return 200

    def answer(self, status):
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        """Logs nothing, because `do_POST` prints each call."""


def main():
    address = os.environ.get("RECEIVER_ADDRESS", "127.0.0.1")
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    server = http.server.ThreadingHTTPServer((address, port), Receiver)
    print(f"listening at {address}:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
