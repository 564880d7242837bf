# SPDX-License-Identifier: Apache-2.0
# However many of these run, one leads: it does ten rounds, and counts each.
import time

import stockade

with stockade.connect("stockade://127.0.0.1:7379") as shop:
    done = 0
    while done < 10:
        with shop.lead("rounds", ttl=10) as term:  # waits until it leads
            print("leads, by token", term.token, flush=True)
            try:
                while done < 10 and not term.lost.is_set():
                    done = int(term.get() or 0) + 1
                    time.sleep(0.1)  # the round: it may take its time, or stand still here
                    term.set(done)
                    print("round", done, flush=True)
            except stockade.Stale:
                print("another leads, and does that round", flush=True)
