# SPDX-License-Identifier: Apache-2.0
"""A shop on Flask, a thread for each request: POST /sell/SKU, as a shop would write it.

    flask_shop.py URI TTL_MS

It prints its port, and ends by itself after some minutes."""

import logging
import signal
import sys
import time

import flask
import stockade
from werkzeug.serving import make_server

app = flask.Flask(__name__)
shop = stockade.connect(sys.argv[1], timeout=60)


@app.post("/sell/<sku>")
@shop.leased("sku:{sku}", ttl=int(sys.argv[2]) / 1000, wait=300)
def sell(sku, lease):
    left = int(lease.get())
    if left == 0:
        return {"error": "sold out"}
    time.sleep(0.003)  # a price rule
    lease.set(left - 1)
    return {"left": left - 1}


@app.errorhandler(stockade.StockadeError)
def refuse(error):
    return {"error": error.code}


if __name__ == "__main__":
    signal.alarm(900)
    logging.getLogger("werkzeug").disabled = True
    server = make_server("127.0.0.1", 0, app, threaded=True)
    print(server.port, flush=True)
    server.serve_forever()
