import {duration, h, keyed, names, plural, text, when} from '../ui.js';

const most = 12;

function build(root) {
  const log = h('ol.log', {'aria-label': 'Losses, newest first'});
  const empty = h('p.empty', 'No stretch of the oplog has been missed.');
  const rest = h('p.help');
  root.classList.add('half');
  root.append(empty, log, rest);
  return ({gaps}) => {
    if (!gaps) return;
    const all = [...gaps.gaps].reverse();
    empty.hidden = all.length > 0;
    text(rest, all.length > most ? `and ${plural(all.length - most, 'earlier loss', 'earlier losses')}: streamer gaps` : '');
    keyed(log, all.slice(0, most), (g) => g.id, (g) => {
      const span = Math.max(0, (new Date(g.lost_to.time) - new Date(g.lost_from.time)) / 1000);
      return {
        element: h('li', {'data-level': 'critical'}, when(g.found),
          h('span', `${duration(span)} up to `, when(g.lost_to.time), ` of ${g.namespaces.length ? names(g.namespaces) : 'everything that is watched'}: ${g.reason}, found by ${g.by}`)),
      };
    });
  };
}

export const losses = {id: 'losses', title: 'Losses', build};
