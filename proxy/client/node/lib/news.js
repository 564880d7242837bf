// SPDX-License-Identifier: Apache-2.0
// What the daemon tells of a resource: its events, on the connection that everything goes over, so
// that they keep their order with the replies. (Over RESP3 the daemon also pushes to the holder;
// node-redis drops pushes that it does not know.)
//
// A resource is listened to while somebody here holds it for longer, or waits for it, and a moment
// more, as the next one may come. Where that is refused, or there are too many, nobody is told:
// then holders learn of a loss at their next renewal, and those who wait ask more often.

const RESOURCES_MAX = 1000; // the daemon takes 1,024 subscriptions from a connection
const LINGER_MS = 1000;

export class News {
  #link;
  #ears = new Map();

  constructor(link) {
    this.#link = link;
    link.on('ready', () => this.#onReady());
  }

  // Tells `hear` each event of the resource, and { event: 'reconnected' } when there may have been
  // some that nobody heard. Ends with leave().
  join(resource, hear) {
    let ear = this.#ears.get(resource);
    if (ear === undefined) {
      ear = {
        channel: `stockade:events:${resource}`,
        hearers: new Set(),
        on: false, // subscribed
        gone: false, // nobody listens any more
      };
      ear.listener = (text) => tell(ear, JSON.parse(text));
      this.#ears.set(resource, ear);
      ear.subscribed = this.#subscribe(ear);
    }
    clearTimeout(ear.linger);
    ear.hearers.add(hear);
    return ear;
  }

  leave(resource, hear) {
    const ear = this.#ears.get(resource);
    if (ear === undefined || !ear.hearers.delete(hear) || ear.hearers.size > 0) return;
    ear.linger = setTimeout(() => {
      this.#ears.delete(resource);
      ear.gone = true;
      if (ear.on) this.#unsubscribe(ear);
    }, LINGER_MS);
    ear.linger.unref();
  }

  // Is it listened to now?
  hears(resource) {
    return this.#ears.get(resource)?.on ?? false;
  }

  async #subscribe(ear) {
    if (this.#ears.size > RESOURCES_MAX || !this.#link.client.isReady) return;
    try {
      await this.#link.client.subscribe(ear.channel, ear.listener);
      ear.on = true;
      if (ear.gone) this.#unsubscribe(ear); // left meanwhile
    } catch {
      ear.on = false;
    }
  }

  #unsubscribe(ear) {
    this.#link.client.unsubscribe(ear.channel, ear.listener).catch(() => {});
  }

  // node-redis has subscribed again to what was on.
  #onReady() {
    for (const ear of this.#ears.values()) {
      if (!ear.on) ear.subscribed = this.#subscribe(ear);
      tell(ear, { event: 'reconnected' });
    }
  }
}

function tell(ear, event) {
  for (const hear of [...ear.hearers]) hear(event);
}
