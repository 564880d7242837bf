// SPDX-License-Identifier: Apache-2.0
// Milliseconds of the monotonic clock, which nobody sets.
export const now = () => performance.now();

// Some of it is left to chance, so that a crowd spreads out.
export const jitter = (ms) => ms / 2 + Math.random() * (ms / 2);

export const sleep = (ms) => new Promise((resume) => { setTimeout(resume, ms); });
