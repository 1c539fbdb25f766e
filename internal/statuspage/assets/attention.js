// What needs a person, the worst first: {id, level, title, detail, code, todo}. The remedy shown is todo, else that of the code.

import {clock, duration, names, plural, ranges} from './ui.js';

const checks = {
  log_open: {code: 'STRM-MONGODB-UNREACHABLE'},
  partitions_owned: {code: 'STRM-NODE-DETACHED', todo: 'A node that has just started needs some seconds. If this stays, check that the node reaches etcd and that the cluster has a leader.'},
  checkpoints_saved: {code: 'STRM-CHECKPOINT-UNREADABLE', todo: 'Check the checkpoint store, etcd or MongoDB. Nothing is lost; more is redelivered after a crash.'},
  nodes_alike: {code: 'STRM-CONFIG-CONFLICT', todo: 'Give all nodes the same settings under mongodb (watch, operations, full_document) and restart those that differ.'},
  cluster_read: {code: 'STRM-ETCD-UNREACHABLE'},
  etcd_alarms: {code: 'STRM-ETCD-ALARM'},
  log_written: {code: 'STRM-NODE-LOG'},
  certificates: {code: 'STRM-ACCESS-BAD-CERTIFICATE'},
  identities: {code: 'STRM-ACCESS-BAD-FILE'},
  not_stopping: {code: 'STRM-NODE-STOPPING', todo: 'Nothing, if an operator has stopped it. Otherwise find out what has, and start it again.'},
};

// heartbeats are the checks in nodes' heartbeats.
const heartbeats = {
  mongodb_ok: {text: 'does not reach MongoDB', code: 'STRM-MONGODB-UNREACHABLE'},
  etcd_ok: {text: 'does not reach etcd', code: 'STRM-ETCD-UNREACHABLE'},
  checkpoint_ok: {text: 'cannot save checkpoints', code: 'STRM-CHECKPOINT-UNREADABLE', todo: checks.checkpoints_saved.todo},
  gateway_ok: {text: 'cannot serve gateways yet', code: 'STRM-MONGODB-UNREACHABLE'},
};

const states = {
  failed: {level: 'critical', text: 'stopped and wait for an operator', code: 'STRM-LOG-HISTORY-LOST'},
  stale: {level: 'critical', text: 'stale: subscribers have yet to acknowledge a loss', code: 'STRM-LOG-HISTORY-LOST'},
  no_majority: {level: 'critical', text: 'without a majority of MongoDB to read from', code: 'STRM-MONGODB-MAJORITY'},
  stuck: {level: 'critical', text: 'stuck: nothing comes although the oplog moves', code: 'STRM-MONGODB-UNREACHABLE'},
  recovering: {level: 'warning', text: 'recovering a stretch that may have been missed', code: 'STRM-LOG-HISTORY-LOST', todo: 'Wait; if this stays, look at Losses and at MongoDB\u2019s own log for the reason.'},
  lagging: {level: 'warning', text: 'late', code: 'STRM-MONGODB-SHARDS', todo: 'Look for a subscriber that acknowledges slowly, for a busy MongoDB, and, with shards, at mongodb.tick.'},
};

const written = /STRM-[A-Z-]+[A-Z]/;

// coded returns the code that a text begins with or contains, else another one.
const coded = (text, other) => written.exec(text ?? '')?.[0] ?? other;

const paths = {
  '/v1/subscribers': 'The subscribers cannot be read',
  '/v1/gaps': 'The losses cannot be read',
  '/v1/sinks': 'The sinks cannot be read',
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

export function attention(state, now) {
  const items = [];
  const add = (id, level, title, rest = {}) => items.push({id, level, title, ...rest});
  if (state.unanswered > 1) {
    add('away', 'critical', 'This node does not answer', {
      code: 'STRM-NODE-UNREACHABLE', detail: state.answered ? `Everything below is of ${clock(state.answered)}.` : 'The page tries again.',
      todo: 'Check that the node runs and that this browser reaches it, or open the page of another node.',
    });
  }
  for (const [path, error] of Object.entries(state.errors)) {
    add(`error ${path}`, 'warning', paths[path] ?? path, {detail: error.message, code: error.code, todo: error.remedy});
  }
  if (state.limited) {
    add('limited', 'warning', 'You may see a part only', {
      code: state.limited.code, detail: 'Your identity may not read every namespace: the cluster, its nodes and partitions are not shown, and of subscribers only your own.',
      todo: 'Use a token with namespace=* to see everything.',
    });
  }
  if (state.status) {
    service(state, now, add);
    partitions(state, now, add);
  }
  subscribers(state, add);
  sinks(state, add);
  supervisor(state, add);
  breakers(state, add);
  return items.sort((a, b) => (a.level === b.level ? 0 : a.level === 'critical' ? -1 : 1));
}

// service looks at the node that answers, and at the others.
function service(state, now, add) {
  const s = state.status;
  if (s.detached) add('detached', 'critical', `${s.node} is cut off from its cluster`, {code: 'STRM-NODE-DETACHED', detail: 'It owns no partitions and hands out nothing of what it owned.', todo: 'Check that the node reaches etcd. If all nodes report this, check etcd itself.'});
  for (const c of s.checks) {
    if (c.ok || c.name === 'subscribers_acknowledge' || c.name === 'oplog_head_room' || s.detached && c.name === 'partitions_owned') continue;
    const known = checks[c.name] ?? {};
    add(`check ${c.name}`, c.severity, `${s.node}: ${c.error}`, {detail: c.text, code: coded(c.error, known.code), todo: written.test(c.error) ? '' : known.todo});
  }
  if (state.unled && now - state.unled > 5000 && !s.detached) {
    add('leader', 'critical', 'The cluster has no leader', {
      code: 'STRM-ETCD-UNREACHABLE', detail: `Since ${clock(state.unled)} nobody assigns partitions. Their owners go on.`,
      todo: 'A new leader is elected within seconds. If this stays, check that a majority of etcd\u2019s members answers.',
    });
  }
  if (s.absent.length) {
    const waiting = s.partitions.planned.filter((p) => p < 0).length;
    add('absent', 'critical', `${names(s.absent)} ${s.absent.length === 1 ? 'is' : 'are'} gone`, {
      code: 'STRM-HANDOFF-TARGET-DEAD', detail: `${plural(waiting, 'partition')} of the plan ${waiting === 1 ? 'waits' : 'wait'} to be reassigned.`,
      todo: 'The leader reassigns them within seconds. Find out why the process has ended, and start it again.',
    });
  }
  const missing = s.expected_nodes - s.nodes.length - s.absent.length;
  if (missing > 0 && s.uptime_seconds > 30) {
    const dead = state.notices.filter((n) => n.kind === 'dead' && n.fields?.member_kind === 'node').map((n) => n.fields.member);
    const gone = [...new Set(dead)].filter((name) => !s.nodes.some((n) => n.node === name) && !s.absent.includes(name));
    add('missing', 'warning', `${plural(missing, 'node')} of ${s.expected_nodes} ${missing === 1 ? 'is' : 'are'} missing`, {
      code: 'STRM-HANDOFF-TARGET-DEAD', detail: gone.length ? `Gone: ${names(gone)}. Others own what they had.` : 'cluster.expected_nodes says how many there should be.',
      todo: 'Find out why the process has ended, and start it again. If it is to stay away, lower cluster.expected_nodes.',
    });
  }
  for (const n of s.nodes) {
    if (n.unread) {
      add(`unread ${n.node}`, 'warning', `The heartbeat of ${n.node} cannot be read`, {detail: n.unread, code: 'STRM-CLUSTER-HEARTBEAT'});
    } else if (n.node !== s.node) {
      for (const name of n.failing_checks) {
        const known = heartbeats[name] ?? {text: `fails ${name}`};
        add(`node ${n.node} ${name}`, n.status === 'unhealthy' ? 'critical' : 'warning', `${n.node} ${known.text}`, {code: known.code, todo: known.todo});
      }
    }
  }
}

function partitions(state, now, add) {
  const p = state.status.partitions;
  const of = new Map();
  p.states.forEach((i, partition) => {
    const name = p.state_names[i];
    if (states[name]) of.set(name, [...(of.get(name) ?? []), partition]);
  });
  for (const [name, all] of of) {
    const error = all.map((id) => p.errors[id]).find((e) => e);
    const code = coded(error, states[name].code);
    add(`partitions ${name}`, states[name].level, `${plural(all.length, 'partition')} ${states[name].text}`, {
      detail: [error, `${all.length === 1 ? 'Partition' : 'Partitions'} ${ranges(all)}`].filter(Boolean).join(' · '), code, todo: code === states[name].code ? states[name].todo : '',
    });
  }
  const nobody = p.owners.flatMap((o, id) => (o < 0 ? [id] : []));
  if (nobody.length && now - state.unowned > 10_000) {
    add('unowned', 'critical', `${plural(nobody.length, 'partition')} without an owner`, {
      code: 'STRM-NODE-DETACHED', detail: `Shared subscribers and sinks get nothing of ${ranges(nobody)}; exclusive subscribers are served.`,
      todo: 'Check that the cluster has a leader and healthy nodes, and that they reach etcd.',
    });
  }
}

function subscribers(state, add) {
  const list = state.subscribers;
  if (!list) return;
  if (list.error) add('unreadable', 'warning', 'Some checkpoints cannot be read', {detail: list.error, code: coded(list.error, 'STRM-CHECKPOINT-UNREADABLE')});
  if (list.log_error) add('hidden', 'warning', 'Lag and head-room are unknown', {detail: list.log_error, code: coded(list.log_error, 'STRM-LOG-HIDDEN')});
  const some = (id, level, chosen, title, code, todo) => {
    const all = list.subscribers.filter(chosen);
    if (all.length) add(id, level, title(all), {code, todo, detail: names(all.map((s) => s.subscriber), 8)});
  };
  some('lost', 'critical', (s) => s.head_room_seconds < 0, (a) => `${plural(a.length, 'subscriber')} ${a.length === 1 ? 'has' : 'have'} left the oplog`, 'STRM-LOG-HISTORY-LOST');
  for (const level of ['critical', 'warning']) {
    some(`room ${level}`, level, (s) => s.head_room_seconds >= 0 && headRoomLevel(state, s) === level,
      (a) => `${plural(a.length, 'subscriber')} ${level === 'critical' ? 'about to leave' : 'near the end of'} the oplog, ${duration(Math.min(...a.map((s) => s.head_room_seconds)))} left`,
      'STRM-LOG-SHORT', 'Let them catch up: connect those that are away, and look for slow handlers. Delete subscribers that are gone (streamer subscribers delete). If outages may last this long, enlarge the oplog.');
  }
  some('losses', 'critical', (s) => s.session?.unacknowledged_losses > 0, (a) => `${plural(a.length, 'subscriber')} ${a.length === 1 ? 'has' : 'have'} yet to acknowledge a loss`, 'STRM-LOG-HISTORY-LOST');
  some('overdue', 'warning', (s) => s.session?.overdue, (a) => `${plural(a.length, 'subscriber')} ${a.length === 1 ? 'acknowledges' : 'acknowledge'} nothing`, 'STRM-SESSION-UNACKNOWLEDGED');
}

// sinks looks at those of the node that answers.
function sinks(state, add) {
  for (const s of state.sinks?.sinks ?? []) {
    if (s.state === 'halted') add(`sink ${s.sink}`, 'critical', `Sink ${s.sink} is halted`, {code: 'STRM-SINK-HALTED', detail: s.error});
    if (s.state === 'stalled') add(`sink ${s.sink}`, 'warning', `The target of sink ${s.sink} acknowledges nothing`, {code: coded(s.error, 'STRM-SINK-TARGET'), detail: s.error});
  }
}

// supervisor looks at what the last sweep has found.
function supervisor(state, add) {
  const r = state.reports?.reports[0];
  if (!r) return;
  const down = (r.unhealthy_components ?? []).filter((f) => f.miss_count >= (r.settings?.missed_heartbeats_to_alert ?? 1)).map((f) => f.slug);
  if (down.length) add('components', 'critical', `${plural(down.length, 'component')} ${down.length === 1 ? 'makes' : 'make'} no progress`, {code: 'STRM-SUPERVISOR-COMPONENT-DOWN', detail: names(down, 8)});
  const late = state.unswept / 1000;
  if (late > 3 * (r.settings?.heartbeat_interval_s ?? 30) + 15) add('sweep', 'critical', `No sweep for ${duration(Math.floor(late))}`, {code: 'STRM-SUPERVISOR-SWEEP-MISSING'});
}

// breakers looks for circuit breakers that have opened and not closed, of processes that still run.
function breakers(state, add) {
  const open = new Map();
  for (const n of state.notices) {
    if (n.channel !== 'circuit_breaker') continue;
    const key = `${n.node} ${n.fields?.breaker}`;
    if (n.kind === 'breaker_opened') open.set(key, n);
    else open.delete(key);
  }
  for (const [key, n] of open) {
    const node = state.status?.nodes.find((m) => m.node === n.node);
    if (!node || new Date(n.at) < new Date(node.started_at)) continue;
    const name = n.fields?.breaker ?? '';
    const code = name.startsWith('mongodb') ? 'STRM-MONGODB-UNREACHABLE' : name.startsWith('checkpoints') ? 'STRM-CHECKPOINT-UNREADABLE' : '';
    add(`breaker ${key}`, 'warning', `${n.node}: ${n.text}`, {code: coded(n.fields?.reason, code), detail: n.fields?.reason});
  }
}
