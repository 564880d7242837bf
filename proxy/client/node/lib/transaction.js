// SPDX-License-Identifier: Apache-2.0
// Writes under several leases that are applied whole or not at all. They are collected here and
// sent together; the tokens of all leases hold for all of them.
import { Misuse, Stale } from './errors.js';
import { nameWrite } from './lease.js';
import { converters, fence, operations, reads, sqlWords, word } from './words.js';

export class Transaction {
  #leases;
  #commands = []; // { leases, words, changes, convert }

  constructor(leases) {
    this.#leases = leases;
  }

  #add(leases, words, changes, convert = (reply) => reply) {
    for (const lease of leases) {
      if (!this.#leases.includes(lease)) throw new Misuse('this lease is not of the transaction');
    }
    this.#commands.push({ leases, words, changes, convert });
    return this;
  }

  #operation(name, lease, args) {
    const words = operations[name](lease.resource, ...args);
    return this.#add([lease], words, !reads(words[0]), converters[name]);
  }

  fenced(lease, ...words) {
    return this.#add([lease], words.map(word), !reads(words[0]));
  }

  // Under the tokens of all its leases.
  sql(statement, params) {
    return this.#add(this.#leases, sqlWords(statement, params), true, converters.sql);
  }

  // Sends it: the replies, in order.
  async exec(shop, id = shop.newId()) {
    const commands = [...this.#commands];
    if (commands.length === 0) return [];
    for (const lease of this.#leases) lease.check();
    // A lease that nothing is written under has to be current all the same.
    for (const lease of this.#leases) {
      if (!commands.some(({ leases }) => leases.includes(lease))) {
        commands.push({ leases: [lease], words: ['EXISTS', lease.resource], changes: false });
      }
    }
    const first = commands.find(({ changes }) => changes); // its ID is the whole transaction's
    const words = commands.map((each) => fence(each.leases, each === first ? String(id) : undefined,
      each.words));
    try {
      const replies = await shop.link.exec(words, { changes: first !== undefined });
      return this.#commands.map(({ convert }, i) => convert(replies[i]));
    } catch (error) {
      if (error instanceof Stale) for (const lease of this.#leases) lease.suspect();
      throw first === undefined ? error : nameWrite(error, first.leases[0], String(id));
    }
  }

  static {
    for (const name of Object.keys(operations)) {
      this.prototype[name] = function operation(lease, ...args) {
        return this.#operation(name, lease, args);
      };
    }
  }
}
