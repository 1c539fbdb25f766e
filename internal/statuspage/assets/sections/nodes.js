import {colour} from '../colours.js';
import {past} from '../history.js';
import {address, button} from '../operate.js';
import {badge, bytes, count, duration, h, keyed, natural, rate, spark, table, text} from '../ui.js';

const levels = {healthy: 'fine', starting: 'info', stopping: 'info', degraded: 'warning', unhealthy: 'critical'};

function build(root) {
  const nodes = table('Nodes', [
    {title: 'Node'}, {title: 'State'}, {title: 'Partitions', number: true}, {title: 'Events/s', number: true}, {title: 'Lag', number: true},
    {title: 'Queued', number: true}, {title: 'Gateways', number: true}, {title: 'Up for', number: true}, {title: 'Version'}, {title: 'Operate', operate: true},
  ]);
  root.append(h('div.scroll', nodes.element));
  const make = () => {
    const name = h('span.name');
    const swatch = h('i.swatch');
    const marks = h('span.marks');
    const state = h('span');
    const [owned, queued, gateways, up, version] = [h('span'), h('span'), h('span'), h('span'), h('span')];
    const [rates, lags] = [h('span'), h('span')];
    const [rateChart, lagChart] = [spark(), spark()];
    let seen = null;
    const drain = button('Drain', () => ({
      label: `Drain ${seen.node}`, path: address`/v1/nodes/${seen.node}/drain`,
      what: `Its ${count(seen.owned)} partitions move to other nodes, and it gets none until the drain is undone.`,
    }));
    const undo = button('Undo drain', () => ({
      label: `Undo the drain of ${seen.node}`, path: address`/v1/nodes/${seen.node}/undrain`, what: 'It gets its share of the partitions again.',
    }));
    const element = nodes.row([swatch, name, marks], state, owned, h('span.charted', rateChart.element, rates), h('span.charted', lagChart.element, lags), queued, gateways, up, version, h('span', drain.element, undo.element));
    return {
      element,
      update({node: n, status: s, now, most, latest}) {
        seen = n;
        drain.show(!n.absent && !n.drained && s.nodes.length > 1, `Drain ${n.node}`);
        undo.show(Boolean(n.drained), `Undo the drain of ${n.node}`);
        swatch.style.background = colour(n.node);
        text(name, n.node);
        marks.replaceChildren(...[n.node === s.leader ? h('span.mark', 'leader') : null, n.node === s.node ? h('span.mark', 'this page') : null, n.drained ? h('span.mark', 'drained') : null].filter(Boolean));
        const value = n.unread ? 'unreadable' : n.status || 'unknown';
        state.replaceChildren(badge(n.absent ? 'critical' : levels[n.status] ?? 'warning', n.problems.length ? `${value}: ${n.problems.join(', ')}` : value));
        text(owned, n.owned === n.planned ? count(n.owned) : `${count(n.owned)} → ${count(n.planned)}`);
        text(rates, rate(n.rate));
        rateChart.draw(past(`node/${n.node}/rate`), most);
        text(lags, duration(n.lag_seconds));
        lagChart.draw(past(`node/${n.node}/lag`), latest);
        text(queued, bytes(n.queued_bytes));
        text(gateways, n.absent ? '–' : count(n.gateways.length + n.gateways_unlisted));
        text(up, n.absent ? '–' : duration(Math.max(0, Math.floor((now - new Date(n.started_at)) / 1000))));
        text(version, n.version || '–');
      },
    };
  };
  return ({status: s}, now) => {
    if (!s) return;
    const most = Math.max(...s.nodes.flatMap((n) => past(`node/${n.node}/rate`)));
    const latest = Math.max(1, ...s.nodes.flatMap((n) => past(`node/${n.node}/lag`)));
    const gone = s.absent.map((node) => ({
      node, absent: true, status: 'gone', problems: [], owned: 0, planned: 0, rate: null, lag_seconds: null, queued_bytes: null, gateways: [], gateways_unlisted: 0, version: '',
    }));
    const rows = [...s.nodes, ...gone].sort((a, b) => natural(a.node, b.node)).map((node) => ({node, status: s, now, most, latest}));
    keyed(nodes.body, rows, (r) => r.node.node, make);
  };
}

export const nodes = {id: 'nodes', title: 'Nodes', cluster: true, seen: true, build};
