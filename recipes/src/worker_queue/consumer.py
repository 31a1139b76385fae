#!/usr/bin/env python3
"""Takes orders from the list that the mover fills. It needs the package `redis`.

    consumer.py --name a
"""

import argparse
import json

import redis

READY = "{orders}:ready"


def consume(server, name, handle, wait=0):
    """Handles orders until none has arrived for `wait` seconds. 0 waits without limit.

    An order moves to a list of this consumer and stays there until it is handled. If the consumer
    is killed, it finds the order there after a restart under the same name.
    """
    mine = f"{READY}:{name}"
    while entry := server.lindex(mine, -1) or server.blmove(READY, mine, wait, "RIGHT", "LEFT"):
        order = json.loads(entry)
        handle(order["id"], order["order"], order["text"])
        server.lrem(mine, 1, entry)


def main():
    parser = argparse.ArgumentParser(description="Takes orders from a list.")
    parser.add_argument("--url", default="redis://127.0.0.1:6379/")
    parser.add_argument("--name", required=True, help="unique name of this consumer, also after a restart")
    parser.add_argument("--wait", type=float, default=0, help="seconds without an order after which to end")
    args = parser.parse_args()
    # An order that is repeated after a crash has the same `id`, so book by `id`.
    consume(redis.Redis.from_url(args.url), args.name, print, args.wait)


if __name__ == "__main__":
    main()
