#!/usr/bin/env python3
"""Arms and cancels keylapse timers from Python, by the protocol in docs/internals/wire.md.

    producer.py arm app.trans.notice app:trans:notice:42 15000 '{"amount":1999}'
    producer.py cancel app.trans.notice app:trans:notice:42

The program needs the package `redis`, and the scripts in crates/wire/src/scripts.
"""

import argparse
import functools
import hashlib
import json
import os
import re
import struct
import sys
import time
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, NoScriptError, ResponseError, TimeoutError
from redis.retry import Retry

SCRIPTS = Path(__file__).resolve().parent.parent / "crates" / "wire" / "src" / "scripts"
WIRE_VERSION = 5
RECORD_VERSION = b"\x01"
RETRY_FOR = 10  # seconds; two minutes at most

ARMED = ["armed", "replaced", "kept until the running attempt has ended", "exists", "superseded",
         "no deadline before 2248"]
CANCELLED = ["not armed", "cancelled", "in flight", "in flight"]
MARKER = ["none", "set", "taken", "refused"]
PARTS_GO_HERE = "-- Parts are inserted here.\n"


class Script:
    """A script as the server receives it: shebang, the parts that its header names, and its body. If the body has the line
    PARTS_GO_HERE, all parts except the prelude replace that line."""

    def __init__(self, name):
        body = (SCRIPTS / f"{name}.lua").read_text()
        flags = ",".join(header(body, "Flags:"))
        before, marker, behind = body.rpartition(PARTS_GO_HERE)
        first, others = "", ""
        for part in header(body, "Parts:"):
            text = (SCRIPTS / f"{part}.lua").read_text()
            if part == "prelude" or not marker:
                first += text
            else:
                others += text
        shebang = f"#!lua flags={flags}\n" if flags else "#!lua\n"
        self.text = (shebang + first + before + others + behind).encode()
        self.sha = hashlib.sha1(self.text).hexdigest()
        self.keys = re.findall(r"\d+ (\w+)", " ".join(header(body, "KEYS")))


@functools.cache
def script(name):
    return Script(name)


def header(body, field):
    """Returns the items of a header line, without those in parentheses."""
    line = re.search(rf"^-- {field} (.*)$", body, re.MULTILINE)[1]
    return [word for word in line.split(", ") if not word.startswith("(")]


def partition_of(key, partitions):
    """Returns the partition of a key: its 64-bit FNV-1a hash modulo the number of partitions."""
    digest = 0xCBF29CE484222325
    for byte in key:
        digest = (digest ^ byte) * 0x100000001B3 % 2**64
    return digest % partitions


class Topic:
    """Arms and cancels the timers of one topic."""

    def __init__(self, url, name, namespace="keylapse", partitions=1):
        # The client must not repeat calls by itself, because a repeated call must declare that it is a repeat.
        self.redis = redis.Redis.from_url(url, socket_timeout=2, retry=Retry(NoBackoff(), 0))
        self.name, self.namespace = name, namespace
        entry = json.loads(self.redis.hget(f"{namespace}:topics", name) or "{}")
        self.partitions = entry.get("partitions", partitions)
        self.marker_keys = entry.get("marker_keys", True)

    def arm(self, key, delay_ms, payload, only_if_absent=False):
        """Arms a timer. Returns the outcome and the deadline in ms since 1970."""
        mode = "a" if only_if_absent else "r"
        timer = [key, f"+{delay_ms}", RECORD_VERSION + os.urandom(8), payload]
        reply = persist(lambda repeat: self.run("arm", key, f"{mode}{repeat}{self.marker_keys:d}", *timer))
        code, deadline = read(reply)
        return ARMED[code], deadline

    def cancel(self, key):
        """Cancels a timer. Returns the outcome."""
        cancel = os.urandom(8)
        reply = persist(lambda repeat: self.run("cancel", key, f"{self.marker_keys:d}", key, cancel))
        code, _ = read(reply)
        return CANCELLED[code]

    def run(self, name, key, *args):
        """Runs a script on the partition of a key. Creates the partition if it is new."""
        body, partition = script(name), partition_of(key, self.partitions)
        keys = [self.name_of(what, partition) for what in body.keys]
        args = [WIRE_VERSION, self.partitions, self.name_of("wake", partition), *args]
        try:
            return self.call(body, keys, *args)
        except ResponseError as error:
            if not str(error).startswith("NOMETA"):
                raise
        self.agree(0)  # the first partition decides the number of partitions
        self.agree(partition)
        return self.call(body, keys, *args)

    def agree(self, partition):
        meta = self.name_of("meta", partition)
        answer = self.call(script("init"), [meta], WIRE_VERSION, self.partitions)
        version, partitions = map(int, answer[:2])
        if (version, partitions) != (WIRE_VERSION, self.partitions):
            raise SystemExit(f"{meta} has wire version {version} and {partitions} partitions")

    def name_of(self, what, partition):
        return f"{self.namespace}:{{{self.name}/{partition}}}:{what}"

    def call(self, body, keys, *args):
        try:
            return self.redis.evalsha(body.sha, len(keys), *keys, *args)
        except NoScriptError:  # nothing was executed
            return self.redis.eval(body.text, len(keys), *keys, *args)  # the server keeps the text


def read(reply):
    """Returns the code and the deadline of a reply to a call with one timer. Prints the warnings of the reply."""
    code, marker, deadline = struct.unpack_from(">BBQ", reply)
    wake_up_error, _, refused = reply[10:].decode(errors="replace").partition("\n")
    if wake_up_error:
        print(f"listeners received no wake-up: {wake_up_error}", file=sys.stderr)
    if MARKER[marker] in ("taken", "refused"):
        print(f"the marker key is {MARKER[marker]}: {refused or 'another program uses its name'}", file=sys.stderr)
    return code, deadline


def persist(call):
    """Calls until the server answers, for RETRY_FOR seconds. Each call after the first declares that it is a repeat."""
    until, repeat = time.monotonic() + RETRY_FOR, 0
    while True:
        try:
            return call(repeat)
        except (ConnectionError, TimeoutError):
            if time.monotonic() > until:
                raise  # the server may have executed the call
            repeat = 1
            time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser(description="Arms and cancels keylapse timers.")
    parser.add_argument("--url", default="redis://127.0.0.1:6379/")
    parser.add_argument("--partitions", type=int, default=1, help="partitions of a topic that is not registered yet")
    commands = parser.add_subparsers(dest="command", required=True)
    arm = commands.add_parser("arm")
    cancel = commands.add_parser("cancel")
    for command in (arm, cancel):
        command.add_argument("topic", help="name of the topic, such as app.trans.notice")
        command.add_argument("key", type=os.fsencode, help="key, such as app:trans:notice:42")
    arm.add_argument("delay", type=int, help="delay in milliseconds")
    arm.add_argument("payload", type=os.fsencode, help="payload in the format of the topic's handlers, mostly JSON")
    arm.add_argument("--if-absent", action="store_true")
    args = parser.parse_args()

    topic = Topic(args.url, args.topic, partitions=args.partitions)
    if args.command == "cancel":
        print(topic.cancel(args.key))
    else:
        outcome, deadline = topic.arm(args.key, args.delay, args.payload, args.if_absent)
        print(f"{outcome}, due at {deadline}" if deadline else outcome)


if __name__ == "__main__":
    sys.exit(main())
