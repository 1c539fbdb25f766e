import {lagOf} from './subscribers.js';
import {oldAfter, past, viewAge} from '../history.js';
import {bytes, count, duration, h, rate, spark, text} from '../ui.js';

// tile is a number with a name, what it is out of, and perhaps its course.
function tile(title, withSpark) {
  const value = h('dd.value', '–');
  const note = h('dd.note');
  const chart = withSpark ? spark(220, 34) : null;
  return {
    element: h('div.tile', h('dt', title), value, note, chart ? h('dd.chart', chart.element) : null),
    // set shows a number that is so many seconds old, grey with its age where that is more than it should be.
    set(v, n, level = '', age = 0, most = oldAfter) {
      const old = age > most;
      text(value, v);
      text(note, old ? `${duration(Math.floor(age))} old` : n);
      value.dataset.level = old ? 'old' : level;
      note.title = n;
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
  return (state, now) => {
    const {status: s, subscribers: list} = state;
    const since = (path) => (now - (state.taken[path] ?? now)) / 1000;
    if (s) {
      const view = viewAge(state, now);
      const total = s.nodes.reduce((sum, n) => sum + n.rate, 0);
      events.set(rate(total), `${bytes(s.nodes.reduce((sum, n) => sum + n.queued_bytes, 0))} queued`, '', view);
      events.chart.draw(past('rate'));
      // A degraded node does its own job: something that it serves is late.
      const degraded = s.nodes.filter((n) => n.status === 'degraded').length;
      const serving = s.nodes.filter((n) => n.status === 'healthy').length + degraded;
      const all = Math.max(s.nodes.length + s.absent.length, s.expected_nodes);
      nodes.set(`${serving} of ${all}`, `${degraded ? `${degraded} degraded` : 'healthy'} · ${s.leader ? `${s.leader} leads` : 'no leader'}`, serving < all || degraded ? 'warning' : '', view);
      const n = s.partitions.owners.length;
      const owned = s.partitions.states.filter((x) => x >= 0).length;
      const moving = s.partitions.owners.filter((o, p) => o !== s.partitions.planned[p]).length;
      served.set(owned < n ? `${count(owned)} of ${count(n)}` : `all ${count(n)}`, moving ? `${count(moving)} on the move` : s.plan.version ? `plan ${s.plan.version}: ${s.plan.cause}` : 'one node owns all', owned < n ? 'warning' : '', view);
    }
    if (list) {
      const age = since('/v1/subscribers');
      const there = new Set(s?.nodes.flatMap((n) => n.gateways));
      const here = list.subscribers.filter((x) => x.connected || there.has(x.subscriber)).length;
      connected.set(count(list.subscribers.length), `${count(here)} connected`, '', age, 30);
      const worst = (of, pick) => list.subscribers.reduce((w, x) => (of(x) !== null && of(x) !== undefined && (w === null || pick(of(x), of(w))) ? x : w), null);
      const late = worst((x) => x.lag_seconds, (a, b) => a > b);
      lag.set(late ? lagOf(state, late) : '–', late ? late.subscriber : 'unknown', '', age, 30);
      const near = worst((x) => x.head_room_seconds, (a, b) => a < b);
      const length = (new Date(list.newest_entry) - new Date(list.oplog_begins)) / 1000;
      room.set(duration(near?.head_room_seconds), near ? `${near.subscriber}, of ${list.oplog_oldest ? 'a log' : 'an oplog'} of ${duration(length)}` : list.oplog_begins && list.subscribers.some((x) => x.position) ? 'nothing leaves the oplog yet' : 'unknown', '', age, 30);
    }
  };
}

export const overview = {id: 'overview', title: 'Overview', build};
