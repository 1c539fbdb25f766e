// One subscriber: where it is and was, what it wants, what it owes, and what operators do with it.

import {Refusal, get} from '../api.js';
import {headRoomLevel} from '../attention.js';
import {chart} from '../chart.js';
import {button} from '../operate.js';
import {condition, lagOf} from '../sections/subscribers.js';
import {badge, clock, count, duration, h, keyed, names, plural, rate, table, text, when} from '../ui.js';

const every = 15_000; // milliseconds between two questions

// position writes a place in the log.
export const position = (p) => (p ? `${p.t}:${p.i}` : '–');

// facts makes a list of names and values, and returns {element, set(name, …children)}.
export function facts(names) {
  const values = new Map();
  const element = h('dl.facts', names.map((name) => {
    const value = h('dd', '–');
    values.set(name, value);
    return h('div', h('dt', name), value);
  }));
  return {
    element,
    set(name, ...children) {
      const value = values.get(name);
      const shown = children.map((c) => (c instanceof Node ? `${c.dataset.level ?? ''} ${c.textContent}` : String(c))).join('|');
      if (value.shown === shown) return;
      value.shown = shown;
      value.replaceChildren(...children);
    },
  };
}

// asking asks for a path again and again until it is ended, and calls took with each answer or refused with why there is none.
export function asking(path, took, refused = () => {}) {
  let timer = 0;
  let ended = false;
  const again = async () => {
    if (!document.hidden) {
      try {
        const answer = await get(path);
        if (!ended) took(answer);
      } catch (error) {
        if (!ended) refused(error);
      }
    }
    if (!ended) timer = setTimeout(again, every);
  };
  again();
  return () => {
    ended = true;
    clearTimeout(timer);
  };
}

// lastHour makes the charts of a subscriber.
export function lastHour() {
  const [lags, rates, rooms, owed] = ['Lag', 'Acknowledged events per second', 'Head-room', 'Unacknowledged events'].map(chart);
  const note = h('p.help');
  return {
    element: h('div', h('h3', 'The last hour'), note, h('div.charts', lags.element, rates.element, rooms.element, owed.element)),
    draw(past) {
      const s = past.subscriber;
      text(note, s ? `As ${past.node} saw it while it had a session there, until ${clock(past.at)}.` : 'This node remembers subscribers while they have a session at it: open the page of the node that serves it.');
      const draw = (c, name, values, show) => c.draw([{name, values: values ?? []}], past.at, past.every_seconds, show);
      draw(lags, 'lag', s?.lag_seconds, duration);
      draw(rates, 'rate', s?.rate, rate);
      draw(rooms, 'head-room', s?.head_room_seconds, duration);
      draw(owed, 'unacknowledged', s?.unacknowledged_events, count);
    },
  };
}

// lossList makes a list of losses, the newest first, and says where there is none.
function lossList(label, none) {
  const [list, empty] = [h('ol.log', {'aria-label': label}), h('p.empty', none)];
  return {
    element: h('div', empty, list),
    draw(losses) {
      const latest = (losses ?? []).slice(-10).reverse();
      keyed(list, latest, (l) => l.id, (l) => ({element: h('li', {'data-level': 'critical'}, when(l.found), h('span', 'up to ', when(l.lost_to.time), ` of ${l.namespaces.length ? names(l.namespaces) : 'everything'}: ${l.reason}, found by ${l.by}`))}));
      list.hidden = !latest.length;
      empty.hidden = latest.length > 0;
    },
  };
}

// placesTable makes the table of the partitions where a subscriber is earliest.
export function placesTable(label) {
  const list = table(label, [{title: 'Partition'}, {title: 'Position'}, {title: 'Time'}, {title: 'Behind the newest entry', number: true}]);
  return {
    element: h('div.scroll', list.element),
    draw(places, newest) {
      keyed(list.body, places, (p) => `${p.partition} ${position(p.position)}`, (p) => ({
        element: list.row(...[
          p.partition === null ? 'all others' : String(p.partition), position(p.position), when(p.position.time), newest ? duration(Math.max(0, (new Date(newest) - new Date(p.position.time)) / 1000)) : '–',
        ].map((v) => h('span', v))),
      }));
    },
  };
}

// checkpoints makes the tables of where a subscriber is, of its filters, and of its past.
function checkpoints() {
  const places = placesTable('Partitions where it is earliest');
  const filters = table('Subscriptions', [{title: 'Subscription'}, {title: 'Namespace'}, {title: 'Operations'}, {title: 'Filter'}]);
  const past = table('Checkpoints, newest first', [{title: 'Saved'}, {title: 'Position'}, {title: 'Generation', number: true}, {title: 'By'}, {title: 'Why'}]);
  const [placesNote, filtersNote, error] = [h('p.help'), h('p.help'), h('p.help', {role: 'status'})];
  return {
    element: h('div', error, h('h3', 'Filters'), filtersNote, h('div.scroll', filters.element), h('h3', 'Where it is earliest'), placesNote, places.element, h('h3', 'Its last checkpoints'), h('div.scroll', past.element)),
    refuse(e) {
      text(error, e.code === 'STRM-ACCESS-FORBIDDEN' ? 'Filters and checkpoints are shown to identities with namespace=*.' : e.message);
    },
    draw(d, newest) {
      text(error, d.error ?? '');
      text(placesNote, d.places_total > d.places.length ? `${count(d.places.length)} of ${plural(d.places_total, 'partition')}` : '');
      text(filtersNote, d.filters_total ? (d.filters_total > d.filters.length ? `${count(d.filters.length)} of ${plural(d.filters_total, 'subscription')}` : '') : 'It has no session at this node, which alone would know them.');
      filters.element.hidden = !d.filters.length;
      keyed(filters.body, d.filters, (f) => JSON.stringify(f), (f) => ({
        element: filters.row(h('span.name', f.subscription), h('span', [f.db, f.coll].filter(Boolean).join('.') || 'everything'), h('span', (f.ops ?? []).join(', ') || 'all'), h('code', f.filter || 'all')),
      }));
      places.draw(d.places, newest);
      keyed(past.body, d.history, (c) => `${c.at} ${c.generation} ${position(c.position)}`, (c) => ({
        element: past.row(...[when(c.at), position(c.position), count(c.generation), c.by, [c.reason, c.note].filter(Boolean).join(': ')].map((v) => h('span', v))),
      }));
    },
  };
}

// rewinding makes the form of a rewind. It says what would happen before it asks.
function rewinding(name) {
  const to = h('input', {type: 'datetime-local', step: 1, required: true});
  const said = h('div', {role: 'status'});
  const address = () => `/v1/subscribers/rewind?${new URLSearchParams({subscriber: name, to: new Date(to.value).toISOString().replace(/\.\d+Z$/, 'Z')})}`;
  let plan = null;
  const go = button('Rewind', () => plan && {label: `Rewind ${name}`, path: plan.path, what: plan.what});
  go.show(false);
  const preview = async (event) => {
    event.preventDefault();
    go.show(false);
    plan = null;
    said.replaceChildren(h('p', 'Looking …'));
    try {
      const path = address();
      const p = await get(path);
      const moves = p.checkpoints.filter((c) => c.moves);
      const latest = moves.reduce((a, c) => (new Date(c.from.time) > new Date(a) ? c.from.time : a), moves[0].from.time);
      const known = moves.every((c) => c.events !== undefined);
      const again = known ? `about ${plural(moves.reduce((n, c) => n + c.events, 0), 'change')} of the log, of which it gets those that its filters select` : 'an unknown number of changes';
      const back = duration(Math.max(0, (new Date(latest) - new Date(p.to.time)) / 1000));
      const what = `From ${clock(latest)} (${position(moves[0].from)}) back to ${clock(p.to.time)}, by ${back}${moves.length > 1 ? `, in ${plural(moves.length, 'partition')}` : ''}: ${again} will be delivered again.`;
      plan = {path, what};
      said.replaceChildren(h('p', what), p.reached === 'unknown' ? h('p.help', 'Whether the oplog reaches back so far is not known.') : '');
      go.show(true);
    } catch (error) {
      said.replaceChildren(h('p', error instanceof Refusal ? error.advice : 'The node does not answer.'));
    }
  };
  return h('form.operate', {submit: preview}, h('h3', 'Deliver again'), h('div.bar', h('label.field', h('span', 'Back to'), to), h('button', {type: 'submit'}, 'Preview'), go.element), said);
}

function open(root, name) {
  const about = facts(['State', 'Position', 'Lag', 'Behind, about', 'Head-room', 'Unacknowledged', 'Losses to acknowledge', 'Session', 'Process', 'Generation', 'Saved', 'Snapshots']);
  const missing = h('p.empty', 'No subscriber of this name has a checkpoint or a session here.');
  const own = lossList('Its own losses, newest first', 'It has lost nothing that others have had.');
  const everybody = lossList('Losses of everybody, newest first', 'Nobody has missed a stretch of the oplog.');
  const hour = lastHour();
  const more = checkpoints();
  let row = null;
  const erase = button('Delete', () => ({
    label: `Delete ${name}`, path: `/v1/subscribers/delete?${new URLSearchParams({subscriber: name})}`,
    what: row?.kind === 'shared' ? 'Its checkpoints and their history are deleted. Its session does not end, and saves new checkpoints. If its nodes restart before that, it begins where the origin starts.' : `${row?.session ? `It is connected to ${row.session.node}: its session ends. ` : row?.connected === false ? 'It is not connected. ' : 'It may be connected to another node: its session ends then. '}`
      + 'Its checkpoints and their history are gone. When it comes back it begins at the position that it tells, or as its start policy says.',
  }));
  erase.show(true, `Delete ${name}`);
  root.append(missing, about.element, hour.element, more.element, h('h3', 'Its own losses'), h('p.help', 'What it alone has missed, because it came back when its position had left the log.'), own.element,
    h('h3', 'Losses of everybody'), everybody.element, rewinding(name), h('div.bar.operate', erase.element));
  let newest = null;
  const query = new URLSearchParams({subscriber: name});
  const ends = [asking(`/v1/history?${query}`, hour.draw), asking(`/v1/subscribers/detail?${query}`, (d) => more.draw(d, newest), more.refuse)];
  return {
    update(state) {
      const list = state.subscribers;
      if (!list) return;
      newest = list.newest_entry;
      row = list.subscribers.find((s) => s.subscriber === name);
      missing.hidden = Boolean(row);
      about.element.hidden = !row;
      if (!row) return;
      const s = row.session;
      about.set('State', badge(...condition(state, row)));
      about.set('Position', position(s?.position ?? row.position), ' ', row.position ? when((s?.position ?? row.position).time) : '');
      about.set('Lag', lagOf(state, row));
      about.set('Behind, about', count(row.entries_behind), ' entries of the log');
      about.set('Head-room', headRoomLevel(state, row) ? badge(headRoomLevel(state, row), duration(row.head_room_seconds)) : duration(row.head_room_seconds));
      about.set('Unacknowledged', s ? `${plural(s.unacknowledged_events, 'event')}, credit for ${count(s.credit_events)} more` : '–');
      about.set('Losses to acknowledge', s ? count(s.unacknowledged_losses) : '–');
      const there = state.status?.nodes.filter((n) => n.gateways.includes(name)).map((n) => n.node) ?? [];
      about.set('Session', s ? `at ${s.node}, ${plural(s.partitions, 'partition')}, ${s.live ? 'live' : 'catching up'}` : there.length ? `at ${there.join(', ')}` : 'none at this node');
      about.set('Process', row.claim ? `${row.claim.process} at ${row.claim.node}${row.claim.identity ? ` as ${row.claim.identity}` : ''}, since ` : row.kind === 'shared' ? 'the owners of the partitions' : '–', row.claim ? when(row.claim.started) : '');
      about.set('Generation', count(row.generation), row.generation ? ', the number of its rewinds' : '');
      about.set('Saved', row.saved_at ? `${duration(Math.max(0, Math.floor((Date.now() - new Date(row.saved_at)) / 1000)))} ago by ${row.saved_by || 'a node'}${row.reason ? `: ${row.reason}` : ''}` : 'never');
      const snapshots = s?.snapshots ?? row.snapshots ?? [];
      about.set('Snapshots', snapshots.length ? snapshots.map((x) => `${x.subscription}: ${x.done ? 'done' : `${count(x.read)} of about ${count(x.estimated)} documents`}`).join(' · ') : 'none');
      own.draw(row.losses);
      everybody.draw(state.gaps?.gaps);
    },
    close() {
      for (const end of ends) end();
    },
  };
}

export const subscriber = {path: 'subscribers', title: 'Subscriber', open};
