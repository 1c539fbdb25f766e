import {badge, h, keyed, plural, text, when} from '../ui.js';

const most = 100;
const ranks = {info: 0, warning: 1, critical: 2};

function build(root) {
  const log = h('ol.log.wide', {'aria-label': 'Notices, newest first', tabindex: 0});
  const level = h('select', {'aria-label': 'Which notices', change: () => draw()},
    h('option', {value: 'info'}, 'All'), h('option', {value: 'warning'}, 'Warnings and critical'), h('option', {value: 'critical'}, 'Critical'));
  const empty = h('p.empty', 'No notices yet.');
  const rest = h('p.help');
  const bar = h('div.bar', level);
  root.append(bar, empty, log, rest);
  let state = null;
  function draw() {
    if (!state) return;
    const chosen = state.notices.filter((n) => (ranks[n.severity] ?? 0) >= ranks[level.value]);
    const rows = chosen.slice(-most).reverse();
    empty.hidden = rows.length > 0;
    bar.hidden = state.notices.length === 0;
    keyed(log, rows, (n) => n.id, (n) => ({
      element: h('li', {'data-level': n.severity}, when(n.at), badge(n.severity === 'info' ? 'away' : n.severity, n.kind.replaceAll('_', ' ')), h('span', n.text, h('span.by', ` ${n.node}`))),
    }));
    const older = chosen.length - rows.length + state.missed;
    text(rest, older ? `and ${plural(older, 'older one')}` : '');
  }
  return (next) => {
    state = next;
    draw();
  };
}

export const notices = {id: 'notices', title: 'Notices', build};
