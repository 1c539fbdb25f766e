// One sink: what it publishes, how far behind it is, and what its target says.

import {levels} from '../sections/sinks.js';
import {badge, count, duration, h, plural, rate, text, when} from '../ui.js';
import {at} from '../address.js';
import {asking, facts, lastHour, placesTable} from './subscriber.js';

function open(root, name) {
  const about = facts(['State here', 'Reason', 'Silent since', 'Lag', 'Behind, about', 'Under way', 'Published', 'Published per second', 'Retried', 'Dead letters']);
  const missing = h('p.empty', 'This node has no sink of this name.');
  const hour = lastHour();
  const worst = placesTable('Partitions that are furthest behind');
  const note = h('p.help');
  const link = h('a', 'Its checkpoints, filter and rewind');
  root.append(missing, about.element, h('p', link), hour.element, h('h3', 'The five partitions that are furthest behind'), note, worst.element);
  const query = new URLSearchParams({subscriber: `sink/${name}`});
  let [newest, speed] = [null, null];
  link.href = at('subscribers', `sink/${name}`);
  const ends = [
    asking(`/v1/history?${query}`, (past) => {
      speed = past.subscriber?.rate.at(-1) ?? null;
      hour.draw(past);
    }),
    asking(`/v1/subscribers/detail?${query}`, (d) => {
      text(note, `of ${plural(d.places_total, 'partition')} with a checkpoint`);
      worst.draw(d.places, newest);
    }),
  ];
  return {
    update(state) {
      newest = state.subscribers?.newest_entry ?? null;
      if (!state.sinks) return;
      const s = state.sinks.sinks.find((x) => x.sink === name);
      missing.hidden = Boolean(s);
      about.element.hidden = !s;
      if (!s) return;
      const row = state.subscribers?.subscribers.find((x) => x.kind === 'shared' && x.subscriber === s.subscriber);
      about.set('State here', badge(levels[s.state] ?? 'away', s.state));
      about.set('Reason', s.error || '–');
      about.set('Silent since', s.silent_since ? when(s.silent_since) : '–');
      about.set('Lag', duration(row?.lag_seconds));
      about.set('Behind, about', count(row?.entries_behind), ' entries of the log');
      about.set('Under way', count(s.under_way));
      about.set('Published', count(s.published), ' since the start of this node');
      about.set('Published per second', rate(speed));
      about.set('Retried', count(s.retried));
      about.set('Dead letters', count(s.dead_letters));
    },
    close() {
      for (const end of ends) end();
    },
  };
}

export const sink = {path: 'sinks', title: 'Sink', open};
