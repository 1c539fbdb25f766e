// The answers of a large cluster in trouble: 12 nodes, 4,096 partitions, 300 subscribers.

const now = Date.now();
const ago = (s) => new Date(now - s * 1000).toISOString();
const random = (i) => ((i * 2654435761) % 4294967296) / 4294967296; // the same each time

const members = 12;
const count = 4096;

export function status() {
  const nodes = Array.from({length: members}, (_, i) => ({
    node: `node-${i + 1}`, process: `p${i}`, status: i === 6 ? 'degraded' : 'healthy', problems: i === 6 ? ['etcd'] : [], version: '1.4.0',
    address: `10.0.0.${i + 1}:9090`, started_at: ago(86400 * 3 + i * 1000), rate: 900 + Math.round(200 * Math.sin(i + Date.now() / 4000)),
    lag_seconds: i === 6 ? 14 : 0.2, queued_bytes: Math.round(3e6 * random(i)), drained: i === 8, planned: 0, owned: 0, gateways: [], gateways_unlisted: 0,
  }));
  for (let i = 0; i < 300; i++) if (i % 7) nodes[i % members].gateways.push(name(i));
  const owners = Array.from({length: count}, (_, p) => Math.floor(random(p) * members));
  const planned = owners.map((o, p) => (p % 97 === 0 ? (o + 1) % members : o));
  const states = owners.map((o, p) => (o === 6 ? 2 : p % 311 === 5 ? 3 : random(p + 9) > 0.8 ? 1 : 0));
  owners.forEach((o) => { nodes[o].owned++; });
  planned.forEach((o) => { nodes[o].planned++; });
  return {
    cluster: 'orders-eu', node: 'node-1', version: '1.4.0', status: 'degraded', uptime_seconds: 259_200, detached: false, leader: 'node-2',
    may_operate: false, plan: {version: 812, at: ago(40), by: 'node-2', cause: 'rebalance'}, head_room_warning_seconds: 3600, head_room_critical_seconds: 900, expected_nodes: members, view_age_seconds: 0.4,
    problems: [{
      code: 'STRM-SUPERVISOR-COMPONENT-DOWN', subject: 'component/hub', cause: 'The component hub makes no progress.', severity: 'critical', since: ago(95),
      affects: {nodes: ['node-7'], partitions: [], subscribers: []}, remedy: 'The supervisor restarts it.', runbook: '',
    }],
    nodes, absent: [],
    partitions: {
      owners, planned, why: owners.map(() => 0), states, rates: owners.map((_, p) => Math.round(80 * random(p + 3) ** 4) / 10),
      lag_seconds: owners.map((o) => (o === 0 ? 0.2 : null)), head_room_seconds: owners.map((o) => (o === 0 ? 86_000 : null)), errors: {},
      state_names: ['healthy', 'idle', 'lagging', 'stale'], reasons: ['first by its hash'],
    },
  };
}

const name = (i) => `gateway/${['orders', 'billing', 'search', 'mail', 'stock'][i % 5]}-${String(i).padStart(3, '0')}`;

export function subscribers() {
  return {
    origin: {cluster: 'orders-eu', partitions: count}, node: 'node-1', newest_entry: ago(0), oplog_begins: ago(90_000), oplog_oldest: ago(30_000),
    subscribers: Array.from({length: 300}, (_, i) => {
      const lag = i === 42 ? 89_500 : i === 77 ? 88_000 : Math.round(random(i) ** 6 * 4000) / 10;
      const here = i % 12 === 0 && i % 7 > 0;
      return {
        subscriber: name(i), kind: 'exclusive', position: {time: ago(lag), t: 1, i: 1}, lag_seconds: lag, entries_behind: Math.round(lag * 9000), head_room_seconds: 90_000 - lag, generation: 0,
        without_checkpoint: 0, snapshots: i < 100 && i % 5 === 0 ? snapshots(i) : undefined, saved_at: ago(lag), saved_by: `node-${1 + (i % 12)}`, connected: here ? true : null,
        session: here ? {node: 'node-1', live: true, partitions: count, unacknowledged_events: Math.round(4000 * random(i)), credit_events: 61_536, unacknowledged_losses: 0, overdue: i === 120} : undefined,
        losses: i === 42 ? [{id: 'own', lost_from: {time: ago(96_000)}, lost_to: {time: ago(95_000)}, reason: 'it was away for longer than the oplog lasts', namespaces: ['shop.carts'], found: ago(60), by: 'node-3'}] : undefined,
      };
    }),
  };
}

// snapshots are under way at every fifth of the first hundred subscribers, and three of them are paused.
const snapshots = (i) => [{
  subscription: 'orders', reason: i % 2 ? 'loss' : 'start', done: false, read: 40_000 + i * 731, estimated: 1_200_000, paused: i % 35 === 0, remaining_seconds: 4000 - i * 7,
}];

export function sinks() {
  return {node: 'node-1', sinks: Array.from({length: 12}, (_, i) => ({
    sink: `warehouse-${i + 1}`, subscriber: `sink/warehouse-${i + 1}`, state: ['publishing', 'publishing', 'retrying', 'paused'][i % 4], under_way: i * 31, published: 81_000_000 + i * 1_000_003, retried: i * 7,
    dead_letters: i === 4 ? 3 : 0, error: i % 4 === 2 ? 'connection refused' : '',
  }))};
}

export function reports() {
  const settings = {heartbeat_interval_s: 30, missed_heartbeats_to_alert: 3, auto_restart: true};
  return {
    paused: [{slug: 'node-9', by: 'olga', until: ago(-3000)}],
    reports: Array.from({length: 20}, (_, i) => ({
      report_id: `ops_health_${i}`, sweep: 9000 - i, by: 'node-2', total_components: 108, healthy_count: i ? 108 : 102, unhealthy_count: i ? 0 : 6, sweep_duration_ms: 41, settings,
      fired_at_ms: now - i * 600_000, unwatched: [],
      unhealthy_components: i ? [] : [
        {slug: 'node-7/hub', miss_count: 3, action: 'restarted', cause: 'stalled', last_seen_ms: now - 95_000},
        {slug: 'node-4/tail', miss_count: 1, action: 'none', cause: 'timeout', last_seen_ms: now - 31_000},
        ...['hub', 'tail', 'leases', 'sinks'].map((c) => ({slug: `node-11/${c}`, miss_count: 2, action: 'none', cause: 'unreachable', detail: 'connection refused', last_seen_ms: now - 61_000})),
      ],
      events: i % 4 === 0 ? [{code: 'STRM-SUPERVISOR-AUTO-RESTART', slug: i ? `node-${i}/snapshots` : 'node-7/hub'}] : [],
    })),
  };
}

// history is the last hour of the nodes, of which one fell behind half an hour ago.
export function history() {
  const series = (of) => Array.from({length: 240}, (_, i) => of(i));
  return {
    node: 'node-1', at: ago(5), every_seconds: 15, head_room_seconds: series((i) => 80_000 - i * 20),
    stage_seconds: {mongodb: series(() => null), hub: series(() => 0.0004), transport: series((i) => 0.002 + 0.001 * Math.sin(i / 30)), acknowledgement: series((i) => (i > 200 ? 1.2 : 0.01))},
    nodes: Object.fromEntries(Array.from({length: members}, (_, n) => [`node-${n + 1}`, {
      rate: series((i) => (i < 20 * n % 50 ? null : 900 + Math.round(200 * Math.sin(n + i / 20)))), lag_seconds: series((i) => (n === 6 && i > 120 && i < 200 ? (200 - i) / 4 : 0.2)), sessions: series((i) => 20 + Math.round(4 * Math.sin(n * i / 30))),
    }])),
  };
}

export function gaps() {
  return {gaps: [{
    id: 'a', lost_from: {time: ago(90_500)}, lost_to: {time: ago(90_020)}, reason: 'the oplog no longer reaches back', namespaces: ['shop.orders'], found: ago(300), by: 'node-4',
  }]};
}

export function notices() {
  return Array.from({length: 400}, (_, i) => {
    const n = {
      id: i + 1, at: ago((400 - i) * 30), node: 'node-2', channel: 'service_health', kind: 'handed_over', severity: 'info',
      text: `node-${1 + (i % 12)} handed 8 partitions over to node-${1 + ((i + 5) % 12)}.`, fields: {},
    };
    if (i % 40 === 39) Object.assign(n, {channel: 'degradation', kind: 'degraded', severity: 'warning', text: 'node-7 is degraded: it keeps its partitions and gets no new ones. It fails: etcd_ok.'});
    return `id: AAAAAAAAAAAA-${n.id}\nevent: ${n.channel}\ndata: ${JSON.stringify(n)}\n\n`;
  }).join('');
}
