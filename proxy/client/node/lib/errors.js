// SPDX-License-Identifier: Apache-2.0
// What can go wrong, as classes of one base. `code` is the first word of the daemon's reply.

export class StockadeError extends Error {
  static code = 'ERR';

  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
    this.code = new.target.code;
  }
}

// The token is older than the resource's newest, or was released or revoked. Nothing was applied.
export class Stale extends StockadeError {
  static code = 'STALE';
}

// This lease was lost; `reason` says how (lease.js lists them).
export class Lost extends Stale {
  constructor(message, reason, options) {
    super(message, options);
    this.reason = reason;
  }
}

// The token was never granted for this resource.
export class Unknown extends StockadeError {
  static code = 'UNKNOWN';
}

// A write to a key whose lease was not given.
export class NoToken extends StockadeError {
  static code = 'NOTOKEN';
}

// The result would leave its bounds: there are not so many left. Nothing was changed.
export class SoldOut extends StockadeError {
  static code = 'RANGE';
}

// Another holds the lease, and did until `wait` ran out.
export class Held extends StockadeError {
  static code = 'HELD';
}

export class Deadlock extends StockadeError {
  static code = 'DEADLOCK';
}

// The lease service cannot be reached: no new leases. Who holds one may write.
export class LeaseDown extends StockadeError {
  static code = 'LEASEDOWN';
}

// The daemon had no room, or was stopping, for as long as the call may take. Nothing was applied.
export class Busy extends StockadeError {
  static code = 'BUSY';
}

// The store failed, such as on a full disk. Nothing of the command was applied.
export class StoreFailed extends StockadeError {
  static code = 'STORE';
}

// SQL touched a guarded row whose token was not presented.
export class Guarded extends StockadeError {
  static code = 'GUARDED';
}

// The key holds another kind of value.
export class WrongType extends StockadeError {
  static code = 'WRONGTYPE';
}

// The receipt may have been removed: nobody knows any more.
export class Expired extends StockadeError {
  static code = 'EXPIRED';
}

// The login is missing or wrong, or does not give this right.
export class Denied extends StockadeError {
  static code = 'NOPERM';
}

// The daemon refused the command; the message says why.
export class Refused extends StockadeError {}

// No answer in time. Nothing was applied.
export class Unreachable extends StockadeError {
  static code = 'UNREACHABLE';
}

// No answer in time to a write that was sent: nobody knows whether it was applied.
// shop.wasApplied(error) asks when the daemon is back.
export class Unsure extends StockadeError {
  static code = 'UNSURE';
}

// The call makes no sense: a mistake in the program.
export class Misuse extends StockadeError {
  static code = 'MISUSE';
}

const BY_CODE = new Map([
  Stale, Unknown, NoToken, SoldOut, Deadlock, LeaseDown, Busy, StoreFailed, Guarded, WrongType,
  Expired, Denied,
].map((each) => [each.code, each]));
BY_CODE.set('NOAUTH', Denied);
BY_CODE.set('WRONGPASS', Denied);

// The error whose reply, or SQLite's message, begins with a code.
export function fromText(text, options) {
  const space = text.indexOf(' ');
  const Kind = BY_CODE.get(space < 0 ? text : text.slice(0, space));
  return Kind === undefined ? new Refused(text, options) : new Kind(text.slice(space + 1), options);
}
