// SPDX-License-Identifier: Apache-2.0
// Several leases that were granted together, all or none. Each is renewed and lost by itself.

export class Leases {
  #leases;
  #signal;

  constructor(leases) {
    this.#leases = leases;
  }

  get length() {
    return this.#leases.length;
  }

  [Symbol.iterator]() {
    return this.#leases[Symbol.iterator]();
  }

  // Aborts when one of them is lost.
  get signal() {
    this.#signal ??= AbortSignal.any(this.#leases.map((lease) => lease.signal));
    return this.#signal;
  }

  get valid() {
    return this.#leases.every((lease) => lease.valid);
  }

  // Gives all of them back. False: one was lost already.
  async release() {
    const ends = await Promise.allSettled(this.#leases.map((lease) => lease.release()));
    const failed = ends.find(({ status }) => status === 'rejected');
    if (failed) throw failed.reason;
    return ends.every(({ value }) => value);
  }

  async [Symbol.asyncDispose]() {
    await Promise.all(this.#leases.map((lease) => lease[Symbol.asyncDispose]()));
  }
}
