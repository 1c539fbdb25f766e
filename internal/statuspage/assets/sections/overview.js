import {lagOf} from './subscribers.js';
import {past} from '../history.js';
import {bytes, count, duration, h, rate, spark, text} from '../ui.js';

// tile is a number with a name, what it is out of, and perhaps its course.
function tile(title, withSpark) {
  const value = h('dd.value', '–');
  const note = h('dd.note');
  const chart = withSpark ? spark(220, 34) : null;
  return {
    element: h('div.tile', h('dt', title), value, note, chart ? h('dd.chart', chart.element) : null),
    set(v, n, level = '') {
      text(value, v);
      text(note, n);
      value.dataset.level = level;
    },
    chart,
  };
}

function build(root) {
  const events = tile('Events per second', true);
  const nodes = tile('Nodes');
  const served = tile('Partitions served');
  const connected = tile('Subscribers');
  const lag = tile('Greatest lag');
  const room = tile('Least head-room');
  root.classList.add('plain');
  root.append(h('dl.tiles', [events, nodes, served, connected, lag, room].map((t) => t.element)));
  return (state) => {
    const {status: s, subscribers: list} = state;
    if (s) {
      const total = s.nodes.reduce((sum, n) => sum + n.rate, 0);
      events.set(rate(total), `${bytes(s.nodes.reduce((sum, n) => sum + n.queued_bytes, 0))} queued`);
      events.chart.draw(past('rate'));
      const well = s.nodes.filter((n) => n.status === 'healthy').length;
      const all = Math.max(s.nodes.length + s.absent.length, s.expected_nodes);
      nodes.set(`${well} of ${all}`, s.leader ? `healthy · ${s.leader} leads` : 'healthy · no leader', well < all ? 'warning' : '');
      const n = s.partitions.owners.length;
      const owned = s.partitions.states.filter((x) => x >= 0).length;
      const moving = s.partitions.owners.filter((o, p) => o !== s.partitions.planned[p]).length;
      served.set(owned < n ? `${count(owned)} of ${count(n)}` : `all ${count(n)}`, moving ? `${count(moving)} on the move` : s.plan.version ? `plan ${s.plan.version}: ${s.plan.cause}` : 'one node owns all', owned < n ? 'warning' : '');
    }
    if (list) {
      const there = new Set(s?.nodes.flatMap((n) => n.gateways));
      const here = list.subscribers.filter((x) => x.connected || there.has(x.subscriber)).length;
      connected.set(count(list.subscribers.length), `${count(here)} connected`);
      const worst = (of, pick) => list.subscribers.reduce((w, x) => (of(x) !== null && of(x) !== undefined && (w === null || pick(of(x), of(w))) ? x : w), null);
      const late = worst((x) => x.lag_seconds, (a, b) => a > b);
      lag.set(late ? lagOf(state, late) : '–', late ? late.subscriber : 'unknown');
      const near = worst((x) => x.head_room_seconds, (a, b) => a < b);
      const length = (new Date(list.newest_entry) - new Date(list.oplog_begins)) / 1000;
      room.set(duration(near?.head_room_seconds), near ? `${near.subscriber}, of an oplog of ${duration(length)}` : 'unknown');
    }
  };
}

export const overview = {id: 'overview', title: 'Overview', build};
