import {button} from '../operate.js';
import {badge, clock, count, duration, h, keyed, names, natural, plural, table, text, when} from '../ui.js';

const most = 12;

const causes = {
  timeout: 'no answer in time', unreachable: 'not reachable', bad_status: 'answers with an error', bad_body: 'answers with something else',
  other_process: 'another process answers', stalled: 'makes no progress', gone: 'has left the cluster',
};
const actions = {
  none: 'nothing yet', restarted: 'restarted', budget_exhausted: 'no restarts left', paused: 'restarts are paused', auto_restart_off: 'restarts are off',
  damped: 'waits for other restarts', half_unreachable: 'half of the nodes do not answer', budget_unknown: 'the store does not answer', not_restartable: 'cannot be restarted',
};
const restarted = 'STRM-SUPERVISOR-AUTO-RESTART';
const periods = [['15 minutes', '15m'], ['1 hour', '1h'], ['8 hours', '8h']];

const pausing = (slug, during, spoken) => ({
  label: `Pause restarts of ${slug}`, what: `It is not restarted for ${spoken}, whatever it does. It is still watched, and pages are still sent.`,
  path: `/v1/restarts/pause?${new URLSearchParams({slug, for: during})}`,
});

// byNode has one row for a node of which several components are missed for the same cause: the node is what is wrong.
function byNode(findings) {
  const rows = new Map();
  for (const f of findings) {
    const [node, component] = [f.slug.split('/')[0], f.slug.split('/').slice(1).join('/')];
    const key = `${node} ${f.cause} ${f.action}`;
    const row = rows.get(key);
    if (!row) rows.set(key, {finding: f, components: [component || node]});
    else {
      row.components.push(component || node);
      row.finding = {...row.finding, slug: node, miss_count: Math.max(row.finding.miss_count, f.miss_count), last_seen_ms: Math.min(row.finding.last_seen_ms, f.last_seen_ms)};
    }
  }
  return [...rows.values()].sort((a, b) => natural(a.finding.slug, b.finding.slug));
}

function build(root) {
  const summary = h('p');
  const bar = h('progress', {max: 1, 'aria-label': 'Components that make progress'});
  const unwatched = h('p.help');
  const list = table('Components with misses', [
    {title: 'Component'}, {title: 'Misses', number: true}, {title: 'Cause'}, {title: 'Last well', number: true}, {title: 'What was done'}, {title: 'Operate', operate: true},
  ]);
  const empty = h('p.empty', 'No sweep yet.');
  const restarts = h('ol.log', {'aria-label': 'Restarts, newest first'});
  const noRestarts = h('p.empty', 'Nothing was restarted in the reports shown here.');
  const paused = h('ul.moves', {'aria-label': 'Paused restarts'});
  const node = h('select', {'aria-label': 'Node whose restarts are paused', change: () => pause.show(true, `Pause restarts of ${node.value}`)});
  const period = h('select', {'aria-label': 'For how long'}, periods.map(([name, value]) => h('option', {value, selected: value === '1h'}, name)));
  const pause = button('Pause restarts', () => node.value && pausing(node.value, period.value, period.selectedOptions[0].textContent));
  const form = h('div.bar.operate', node, period, pause.element);
  const title = (name) => h('h3', name);
  root.append(empty, h('div.bar', summary, bar), unwatched, h('div.scroll', list.element), h('div.split', h('div', title('Restarts'), noRestarts, restarts), h('div', title('Paused'), paused, form)));

  const make = () => {
    let seen = null;
    const [name, parts, misses, cause, last, done] = [h('span.name'), h('span.help.line'), h('span'), h('span'), h('span'), h('span')];
    const act = button('Pause restarts', () => pausing(seen.slug, '1h', '1 hour'));
    return {
      element: list.row([name, parts], misses, cause, last, done, h('span', act.element)),
      update({finding: f, components, threshold}) {
        seen = f;
        text(name, f.slug);
        text(parts, components.length > 1 ? `${plural(components.length, 'component')}: ${names(components, 12)}` : '');
        text(misses, threshold ? `${count(f.miss_count)} of ${count(threshold)}` : count(f.miss_count));
        cause.replaceChildren(badge(f.miss_count >= threshold ? 'critical' : 'warning', causes[f.cause] ?? f.cause), f.detail ? h('span.help', ` ${f.detail}`) : '');
        text(last, f.last_seen_ms ? clock(f.last_seen_ms) : 'unknown');
        text(done, actions[f.action] ?? f.action);
        act.show(f.action !== 'paused', `Pause restarts of ${f.slug}`);
      },
    };
  };

  return ({reports, status}) => {
    if (!reports) return;
    const r = reports.reports[0];
    empty.hidden = Boolean(r);
    bar.hidden = !r?.total_components;
    if (r) {
      const s = r.settings ?? {};
      bar.value = r.total_components ? r.healthy_count / r.total_components : 0;
      bar.dataset.level = r.healthy_count < r.total_components ? 'critical' : 'fine';
      text(summary, `Sweep ${count(r.sweep)} at ${clock(r.fired_at_ms)} by ${r.by}, in ${duration(r.sweep_duration_ms / 1000)}: ${r.total_components ? `${count(r.healthy_count)} of ${plural(r.total_components, 'component')} make progress` : 'no components are known yet'}.`
        + ` Every ${duration(s.heartbeat_interval_s)}; a page after ${plural(s.missed_heartbeats_to_alert ?? 0, 'miss', 'misses')}; restarts are ${s.auto_restart ? 'on' : 'off'}.`);
      text(unwatched, r.unwatched?.length ? `Not watched, because other machines cannot reach their addresses: ${r.unwatched.join(', ')}` : '');
    }
    const findings = byNode(r?.unhealthy_components ?? []).map((f) => ({...f, threshold: r.settings?.missed_heartbeats_to_alert}));
    keyed(list.body, findings, (f) => `${f.finding.slug} ${f.finding.cause} ${f.finding.action}`, make);
    list.element.hidden = findings.length === 0;
    const all = reports.reports.flatMap((x) => (x.events ?? []).filter((e) => e.code === restarted).map((e) => ({key: `${x.sweep} ${e.slug}`, at: x.fired_at_ms, slug: e.slug})));
    keyed(restarts, all.slice(0, most), (e) => e.key, (e) => ({element: h('li', when(e.at), h('span', e.slug))}));
    noRestarts.hidden = all.length > 0;
    const pauses = reports.paused ?? [];
    keyed(paused, pauses, (p) => p.slug, (p) => {
      const label = h('span');
      const resume = button('Allow restarts', () => ({
        label: `Allow restarts of ${p.slug}`, what: 'It is restarted again when it makes no progress.', path: `/v1/restarts/resume?${new URLSearchParams({slug: p.slug})}`,
      }));
      resume.show(true, `Allow restarts of ${p.slug}`);
      return {
        element: h('li', label, resume.element),
        update: (now) => text(label, `${now.slug} until ${clock(now.until)}, by ${now.by}`),
      };
    });
    const nodes = (status?.nodes ?? []).map((n) => n.node).sort(natural);
    const chosen = node.value;
    keyed(node, nodes, (n) => n, (n) => ({element: h('option', {value: n}, n)}));
    if (chosen && nodes.includes(chosen)) node.value = chosen;
    pause.show(nodes.length > 0, `Pause restarts of ${node.value}`);
  };
}

export const supervisor = {id: 'supervisor', title: 'Supervisor', cluster: true, build};
