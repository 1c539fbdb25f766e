// What needs a person, the worst first: {id, level, title, detail, code, todo}. The node judges (package health): the page shows its problems,
// and adds only what it alone can know: that the node does not answer it, and what it may not see.

import {clock, duration, names, plural, ranges} from './ui.js';

// codes returns the codes that a text contains, such as one of joined errors.
const codes = (text) => text?.match(/STRM-[A-Z-]+[A-Z]/g) ?? [];

const paths = {
  '/v1/subscribers': 'The subscribers cannot be read',
  '/v1/gaps': 'The losses cannot be read',
  '/v1/sinks': 'The sinks cannot be read',
  '/v1/history': 'The last hour cannot be read',
  '/v1/reports?limit=50': 'The supervisor\u2019s reports cannot be read',
  '/v1/notices': 'Notices do not come',
  '/v1/status': 'The cluster cannot be read',
};

// headRoomLevel says what head-room of a subscriber means, '' for nothing, as the node judges it.
export function headRoomLevel(state, subscriber) {
  const room = subscriber.head_room_seconds;
  const list = state.subscribers;
  const s = state.status;
  if (room === null || room === undefined || !s || !list?.newest_entry || !list.oplog_begins) return '';
  const length = (new Date(list.newest_entry) - new Date(list.oplog_begins)) / 1000;
  if (room < 0 || room < Math.min(s.head_room_critical_seconds, length / 4)) return 'critical';
  if (room < Math.min(s.head_room_warning_seconds, length / 2)) return 'warning';
  return '';
}

// explained reports whether a problem of what the node depends on is why something cannot be read. Others may have the same code for another reason.
const explained = (state, code) => Boolean(state.status?.problems.some((p) => p.code === code && ['etcd', 'mongodb'].includes(p.subject)));

const levels = ['critical', 'warning', 'info'];

// concerned says since when there is a problem, and whom it affects.
function concerned(p) {
  const {nodes, partitions, subscribers} = p.affects;
  const since = new Date(p.since);
  return [
    since.getTime() > 0 ? `Since ${clock(since)}` : '', nodes.length ? names(nodes, 8) : '',
    partitions.length ? `${partitions.length === 1 ? 'partition' : 'partitions'} ${ranges(partitions)}` : '', subscribers.length ? names(subscribers, 8) : '',
  ].filter(Boolean).join(' · ');
}

export function attention(state) {
  const items = [];
  const add = (id, level, title, rest = {}) => items.push({id, level, title, ...rest});
  if (state.unanswered > 1) {
    add('away', 'critical', 'This node does not answer', {
      code: 'STRM-NODE-UNREACHABLE', detail: state.answered ? `Everything below is of ${clock(state.answered)}.` : 'The page tries again.',
      todo: 'Check that the node runs and that this browser reaches it, or open the page of another node.',
    });
  }
  for (const [path, error] of Object.entries(state.errors)) {
    error.explained ||= explained(state, error.code); // when the problem is over, too, until the node is asked again
    if (error.explained) continue;
    add(`error ${path}`, 'warning', paths[path] ?? path, {detail: error.message, code: error.code, todo: error.remedy});
  }
  if (state.limited) {
    add('limited', 'warning', 'You may see a part only', {
      code: state.limited.code, detail: 'Your identity may not read every namespace: the cluster, its nodes and partitions are not shown, and of subscribers only your own.',
      todo: 'Use a token with namespace=* to see everything.',
    });
  }
  for (const p of state.status?.problems ?? []) {
    add(`problem ${p.subject}`, p.severity, p.cause, {code: p.code, detail: [concerned(p), p.detail].filter(Boolean).join(' · '), todo: p.remedy, runbook: p.runbook});
  }
  checkpoints(state, add);
  return items.sort((a, b) => levels.indexOf(a.level) - levels.indexOf(b.level));
}

// checkpoints looks at what cannot be read, and at subscribers without a session, of which no node judges.
function checkpoints(state, add) {
  const list = state.subscribers;
  if (!list) return;
  if (list.error) {
    const found = codes(list.error);
    const unexplained = found.length ? found.find((code) => !explained(state, code)) : 'STRM-CHECKPOINT-UNREADABLE';
    if (unexplained) add('unreadable', 'warning', 'Some checkpoints cannot be read', {detail: list.error, code: unexplained});
  }
  if (list.log_error && !state.status?.problems.some((p) => p.subject === 'mongodb')) {
    add('hidden', 'warning', 'Lag and head-room are unknown', {detail: list.log_error, code: codes(list.log_error)[0] ?? 'STRM-LOG-HIDDEN'});
  }
  const there = new Set(state.status?.nodes.flatMap((n) => n.gateways));
  const away = list.subscribers.filter((s) => s.kind !== 'shared' && !s.connected && !there.has(s.subscriber));
  const lost = away.filter((s) => s.head_room_seconds < 0);
  if (lost.length) add('lost', 'warning', `${plural(lost.length, 'subscriber')} that ${lost.length === 1 ? 'is' : 'are'} away ${lost.length === 1 ? 'has' : 'have'} left the oplog`, {code: 'STRM-LOG-HISTORY-LOST', detail: names(lost.map((s) => s.subscriber), 8)});
  const near = away.filter((s) => s.head_room_seconds >= 0 && headRoomLevel(state, s));
  if (near.length) {
    add('room', 'warning', `${plural(near.length, 'subscriber')} that ${near.length === 1 ? 'is' : 'are'} away ${near.length === 1 ? 'is' : 'are'} near the end of the oplog, ${duration(Math.min(...near.map((s) => s.head_room_seconds)))} left`, {
      code: 'STRM-SUBSCRIBER-HEAD-ROOM', detail: names(near.map((s) => s.subscriber), 8), todo: 'Connect them, or delete those that are gone (streamer subscribers delete).',
    });
  }
}
