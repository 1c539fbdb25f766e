import {colour} from '../colours.js';
import {h, keyed, plural, ranges, text, when} from '../ui.js';

const most = 12;

// under returns the partitions that are on their way, by where from and where to.
function under(s) {
  const moves = new Map();
  s.partitions.owners.forEach((owner, id) => {
    const to = s.partitions.planned[id];
    if (to < 0 || to === owner) return;
    const key = `${owner} ${to}`;
    const move = moves.get(key) ?? {key, from: owner, to, all: []};
    move.all.push(id);
    moves.set(key, move);
  });
  return [...moves.values()];
}

function build(root) {
  const now_ = h('ul.moves', {'aria-label': 'Handoffs under way'});
  const past_ = h('ol.log', {'aria-label': 'Handoffs and reassignments, newest first'});
  const empty = h('p.empty', 'No partition has moved lately.');
  root.classList.add('half');
  root.append(now_, empty, past_);
  return ({status: s, notices}) => {
    if (s) {
      keyed(now_, under(s), (m) => m.key, () => {
        const [from, to] = [h('i.swatch'), h('i.swatch')];
        const label = h('span');
        return {
          element: h('li', from, h('span.arrow', {'aria-hidden': 'true'}, '→'), to, label),
          update(m) {
            from.style.background = m.from < 0 ? 'transparent' : colour(s.nodes[m.from].node);
            to.style.background = colour(s.nodes[m.to].node);
            text(label, `${s.nodes[m.from]?.node ?? 'nobody'} to ${s.nodes[m.to].node}: ${plural(m.all.length, 'partition')} (${ranges(m.all)})`);
          },
        };
      });
    }
    const moves = notices.filter((n) => n.kind === 'handed_over' || n.kind === 'moved').slice(-most).reverse();
    empty.hidden = moves.length > 0 || now_.childElementCount > 0;
    keyed(past_, moves, (n) => n.id, (n) => ({
      element: h('li', {'data-level': n.severity}, when(n.at), h('span', n.text)),
    }));
  };
}

export const handoffs = {id: 'handoffs', title: 'Handoffs', build};
