import {headRoomLevel} from '../attention.js';
import {past} from '../history.js';
import {badge, count, duration, h, keyed, natural, plural, spark, table, text} from '../ui.js';
import {at} from '../address.js';

const few = 25;

// orders say which subscribers come first; those of which nothing is known come last.
const unknown = (v, other) => (v === null || v === undefined ? other : v);
const orders = {
  'Least head-room': (a, b) => unknown(a.head_room_seconds, Infinity) - unknown(b.head_room_seconds, Infinity),
  'Greatest lag': (a, b) => unknown(b.lag_seconds, -1) - unknown(a.lag_seconds, -1),
  'Most unacknowledged': (a, b) => (b.session?.unacknowledged_events ?? -1) - (a.session?.unacknowledged_events ?? -1),
  Name: (a, b) => natural(a.subscriber, b.subscriber),
};

// lagOf shows a lag: only of a session here with all partitions is more known than the checkpoint says.
export function lagOf(state, s) {
  const exact = s.session?.partitions === state.subscribers.origin.partitions;
  return s.lag_seconds > 0 && !exact ? `≤ ${duration(s.lag_seconds)}` : duration(s.lag_seconds);
}

export function condition(state, s) {
  const level = headRoomLevel(state, s);
  if (s.head_room_seconds < 0) return ['critical', 'left the oplog'];
  if (s.session?.unacknowledged_losses) return ['critical', 'owes a loss'];
  if (s.session?.overdue) return ['warning', `silent for ${duration(s.session.acknowledges_nothing_seconds)}`];
  if (level) return [level, level === 'critical' ? 'leaves the oplog soon' : 'low head-room'];
  if (s.session) return s.session.live ? ['fine', 'live'] : ['info', 'catching up'];
  if (s.connected === false) return ['away', 'not connected'];
  const there = state.status?.nodes.find((n) => n.gateways.includes(s.subscriber));
  if (there) return ['fine', `live at ${there.node}`];
  return ['away', state.status?.nodes.some((n) => n.gateways_unlisted) || s.kind === 'shared' ? 'not here' : 'not connected'];
}

function build(root) {
  const list = table('Subscribers', [
    {title: 'Subscriber'}, {title: 'State'}, {title: 'Lag', number: true}, {title: 'Behind, about', number: true}, {title: 'Head-room', number: true},
    {title: 'Unacknowledged', number: true}, {title: 'Saved'},
  ]);
  const find = h('input', {type: 'search', 'aria-label': 'Find subscribers by name', placeholder: 'Find by name', input: () => draw()});
  const order = h('select', {'aria-label': 'Order of the subscribers', change: () => draw()}, Object.keys(orders).map((name) => h('option', name)));
  const shown = h('p.help', {role: 'status'});
  const more = h('button', {type: 'button', click: () => { all = !all; draw(); }});
  const empty = h('p.empty', 'No subscriber has a checkpoint or a session here yet.');
  const bar = h('div.bar', find, order);
  root.append(bar, empty, h('div.scroll', list.element), h('div.bar', shown, more));
  let state = null;
  let all = false;

  const make = () => {
    const name = h('a.name');
    const kind = h('span.marks');
    const [condition_, lag, behind, room, owes, saved] = [h('span'), h('span'), h('span'), h('span'), h('span'), h('span')];
    const chart = spark();
    const bar_ = h('progress', {max: 1, 'aria-hidden': 'true'});
    const element = list.row([name, kind], condition_, h('span.charted', chart.element, lag), behind, h('span.charted', bar_, room), owes, saved);
    return {
      element,
      update(s) {
        text(name, s.subscriber);
        name.href = at('subscribers', s.subscriber);
        if (s.kind === 'shared') kind.replaceChildren(h('span.mark', 'shared'));
        const [level, value] = condition(state, s);
        condition_.replaceChildren(badge(level, value));
        text(lag, lagOf(state, s));
        chart.draw(past(`lag/${s.kind}/${s.subscriber}`), 1);
        text(behind, s.entries_behind === null ? '–' : count(s.entries_behind));
        text(room, duration(s.head_room_seconds));
        const l = state.subscribers;
        const length = (new Date(l.newest_entry) - new Date(l.oplog_begins)) / 1000;
        bar_.hidden = s.head_room_seconds === null || !(length > 0);
        bar_.value = bar_.hidden ? 0 : Math.max(0, Math.min(1, s.head_room_seconds / length));
        bar_.dataset.level = headRoomLevel(state, s) || 'fine';
        text(owes, s.session ? `${count(s.session.unacknowledged_events)} of ${count(s.session.unacknowledged_events + s.session.credit_events)}` : '–');
        owes.title = s.session ? 'events without acknowledgement, of the credit' : '';
        text(saved, s.saved_at ? `${duration(Math.max(0, Math.floor((Date.now() - new Date(s.saved_at)) / 1000)))} ago by ${s.saved_by || 'a node'}` : 'never');
      },
    };
  };

  function draw() {
    if (!state?.subscribers) return;
    const text_ = find.value.trim().toLowerCase();
    const found = state.subscribers.subscribers.filter((s) => s.subscriber.toLowerCase().includes(text_)).sort((a, b) => orders[order.value](a, b) || natural(a.subscriber, b.subscriber));
    const rows = all ? found : found.slice(0, few);
    keyed(list.body, rows, (s) => `${s.kind} ${s.subscriber}`, make);
    const total = state.subscribers.subscribers.length;
    empty.hidden = total > 0;
    list.element.hidden = total === 0;
    bar.hidden = total <= 5 && !text_;
    more.hidden = found.length <= few;
    text(more, all ? 'Show fewer' : `Show all ${count(found.length)}`);
    text(shown, rows.length < total ? `${count(rows.length)} of ${plural(total, 'subscriber')}` : '');
  }

  return (next) => {
    state = next;
    draw();
  };
}

export const subscribers = {id: 'subscribers', title: 'Subscribers', build};
