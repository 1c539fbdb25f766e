// Tries a filter on events that are there already. The node evaluates it, as it does for everybody: one stream gets what the filter selects, another one what its
// opposite selects, both from the place before the first event. What comes on one only matches, or does not; what comes on both cannot be known, and is
// delivered; what comes on neither fails.

import {Refusal, follow} from './api.js';
import {headOf} from './place.js';
import {parameters} from './snippets.js';

const patience = 20_000; // milliseconds

// verdicts are what becomes of an event.
export const verdicts = {
  match: ['fine', 'matches'], other: ['away', 'does not match'], unknown: ['info', 'may match: delivered'], failed: ['critical', 'fails: not delivered'],
};

// run follows one stream until it has passed the end.
async function run(question, filter, before, end, signal, failed) {
  const ids = new Set();
  const own = new AbortController();
  const stop = () => own.abort();
  signal.addEventListener('abort', stop);
  let reached = '';
  let problem = null;
  try {
    await follow(`/v1/events?${new URLSearchParams(parameters({...question, filter, after: before}))}`, before, own.signal, (type, data, id) => {
      if (type === 'open') return;
      if (type === 'message') ids.add(id);
      else if (type === 'filter_failed') failed(data);
      else if (type === 'error' || type === 'unavailable') problem = new Refusal(0, data);
      if (id && headOf(id) > reached) reached = headOf(id);
      if (problem || reached >= end) own.abort();
    });
  } finally {
    signal.removeEventListener('abort', stop);
  }
  if (problem) throw problem;
  return {ids, reached};
}

// attempt returns the verdicts of a filter on events, the oldest first, by their ids, with what the node says about those that fail: {by, said}. Each event has the
// id before it in its stream; the first must have one. It throws the Refusal of a filter that the node does not take.
export async function attempt(question, events, signal) {
  const late = AbortSignal.timeout(patience);
  const both = AbortSignal.any([signal, late]);
  const said = [];
  const failed = (notice) => said.push(notice.message);
  const end = headOf(events.at(-1).id);
  const before = events[0].before;
  const yes = await run(question, question.filter, before, end, both, failed); // alone, for what is refused to be refused once
  const no = await run(question, `!(${question.filter}\n)`, before, end, both, () => {});
  signal.throwIfAborted();
  const by = new Map();
  for (const e of events) {
    const at = headOf(e.id);
    if (at > yes.reached || at > no.reached) continue; // the log was not read so far in time
    by.set(e.id, yes.ids.has(e.id) ? (no.ids.has(e.id) ? 'unknown' : 'match') : no.ids.has(e.id) ? 'other' : 'failed');
  }
  return {by, said};
}
