// What the page has seen since it was opened, for the small charts in tables. The last hour is the node's to remember (/v1/history).

const samples = 90;

const series = new Map();

// note adds a value to a series; null is unknown.
export function note(name, value) {
  let s = series.get(name);
  if (!s) series.set(name, s = []);
  s.push(value ?? null);
  if (s.length > samples) s.shift();
}

// viewAge is how old what the node knows of the other nodes is, in seconds.
export const viewAge = (state, now) => (now - (state.taken['/v1/status'] ?? now)) / 1000 + (state.status?.view_age_seconds ?? 0);

// From oldAfter seconds on what is shown is marked as old.
export const oldAfter = 15;

export const past = (name) => series.get(name) ?? [];

// prune forgets the series of a kind that are not among the names.
export function prune(kind, names) {
  for (const name of series.keys()) {
    if (name.startsWith(`${kind}/`) && !names.has(name)) series.delete(name);
  }
}

// Rates of partitions, of which there may be thousands: a ring of rows.
const rows = [];

export function noteRates(rates) {
  rows.push(Float32Array.from(rates));
  if (rows.length > samples) rows.shift();
}

export const ratesOf = (partition) => rows.map((r) => (partition < r.length ? r[partition] : null));
