#!/usr/bin/env python3
"""A receiver of webhooks for trying things out: checks the signature, prints each call, answers what a file says.

    WEBHOOK_SECRET_FILE=secret python3 receiver.py [PORT]

While there is a file `broken` beside it, each call is answered with the status in it, or 500. The standard library is
all it needs. It has no place in production; its check of the signature has.
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
LONGEST = 1 << 20


def is_genuine(secret, headers, body):
    """Whether the body was signed with this secret (Standard Webhooks 1.0), within the last five minutes."""
    name, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not at.isdigit() or abs(time.time() - int(at)) > TOLERANCE_S:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signature = hmac.new(key, f"{name}.{at}.".encode() + body, hashlib.sha256).digest()
    expected = "v1," + base64.b64encode(signature).decode()
    # While a secret is replaced there are two signatures: one has to be right.
    return any(hmac.compare_digest(expected, one) for one in headers.get("webhook-signature", "").split())


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        length = int(self.headers.get("content-length") or 0)
        if length > LONGEST:
            self.close_connection = True
            return self.answer(413)
        body = self.rfile.read(length)
        status = self.status(body)
        told = json.loads(body) if status != 401 else {}
        data = told.get("data", {})
        # With its end in one piece: calls come beside each other.
        value = json.dumps(data.get("value"))
        print(f"{status} {data.get('key')} attempt {data.get('attempt')} {value}\n", end="", flush=True)
        self.answer(status)

    def status(self, body):
        # Read anew each time: a secret that was replaced is known at once.
        with open(os.environ.get("WEBHOOK_SECRET_FILE", "secret")) as file:
            if not is_genuine(file.read().strip(), self.headers, body):
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
        """One line for each call is enough."""


def main():
    address = os.environ.get("RECEIVER_ADDRESS", "127.0.0.1")
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    server = http.server.ThreadingHTTPServer((address, port), Receiver)
    print(f"listening at {address}:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
