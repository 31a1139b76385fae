#!/usr/bin/env python3
"""A shop that uses Redis without keylapse. It places orders, some of which are paid in time.

    python3 examples/unpaid_orders/shop.py --orders 20

Each order is a key with a TTL. Paying deletes it. A listener closes the others: `cargo run --bin unpaid_orders`.
This program needs the package `redis`.
"""

import argparse
import json
import random
import time

import redis

CUSTOMERS = ["Ada", "Brook", "Cleo", "Dana", "Eli", "Fay"]
KEPT = 3600  # seconds: the books of this example


def place(shop, order, seconds):
    customer = random.choice(CUSTOMERS)
    value = json.dumps({"customer": customer, "cents": random.randrange(100, 10_000)})
    shop.set(f"order:unpaid:{order}", value, ex=seconds)
    print(f"{order}: placed by {customer}, to be paid within {seconds} s")


def pay(shop, order):
    """Pays an order, unless the books have it as closed."""
    stood = shop.set(f"shop:state:{order}", "paid", nx=True, get=True, ex=KEPT)
    if stood is None:
        shop.delete(f"order:unpaid:{order}")
        print(f"{order}: paid")
    else:
        print(f"{order}: too late, it is {stood.decode()}")


def main():
    parser = argparse.ArgumentParser(description="Places orders, and pays some of them.")
    parser.add_argument("--url", default="redis://127.0.0.1:6379/")
    parser.add_argument("--orders", type=int, default=6)
    parser.add_argument("--seconds", type=int, default=5, help="to pay")
    args = parser.parse_args()

    shop = redis.Redis.from_url(args.url)
    run = int(time.time())  # order numbers are used once
    orders = [f"{run}-{n}" for n in range(1, args.orders + 1)]
    for order in orders:
        place(shop, order, args.seconds)
    time.sleep(args.seconds / 2)
    for order in orders[2::3]:
        pay(shop, order)


if __name__ == "__main__":
    main()
