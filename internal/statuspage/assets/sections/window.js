// The log from its oldest entry to its newest, with every subscriber where its checkpoint is: first what is only retained, if anything is, then the oplog.

import {headRoomLevel} from '../attention.js';
import {count, duration, h, keyed, plural, text, when} from '../ui.js';
import {at} from '../address.js';

const named = 3; // of those nearest to the end

// place returns where a subscriber is, from 0 at the oldest entry to 1 at the newest, null while unknown.
function place(list, s) {
  const [begin, end] = [new Date(list.oplog_begins), new Date(list.newest_entry)];
  if (!list.oplog_begins || !list.newest_entry || !(end > begin) || !s.position) return null;
  return (new Date(s.position.time) - begin) / (end - begin);
}

// named_ is what the bar shows.
const named_ = (list) => (list.oplog_oldest ? 'log' : 'oplog');

// room says how long the position of a subscriber stays in the log.
function room(list, s) {
  const log = named_(list);
  if (s.head_room_seconds === null) return `nothing leaves the ${log} yet, or that is unknown`;
  return s.head_room_seconds < 0 ? `left the ${log} ${duration(-s.head_room_seconds)} ago` : `${duration(s.head_room_seconds)} of the ${log} before it`;
}

function build(root) {
  const marks = h('div.marks-of-window', {role: 'list', 'aria-label': 'Subscribers by their place in the oplog'});
  const [begins, middle, ends] = [h('span'), h('span'), h('span')];
  const retained = h('div.retained', {title: 'only in the retained log'});
  const near = h('p');
  const empty = h('p.empty', 'Where the oplog begins is not known.');
  const bar = h('div.window', retained, marks);
  const scale = h('div.scale', begins, middle, ends);
  root.append(empty, near, bar, scale);
  return (state) => {
    const list = state.subscribers;
    if (!list) return;
    const known = Boolean(list.oplog_begins && list.newest_entry && new Date(list.newest_entry) > new Date(list.oplog_begins));
    empty.hidden = known;
    bar.hidden = scale.hidden = near.hidden = !known;
    if (!known) return;
    const all = list.subscribers.map((s) => ({s, at: place(list, s)})).filter((x) => x.at !== null).sort((a, b) => a.at - b.at);
    keyed(marks, all, (x) => `${x.s.kind} ${x.s.subscriber}`, () => {
      const link = h('a.mark-of-window');
      const element = h('span', {role: 'listitem'}, link);
      return {
        element,
        update({s, at: part}) {
          const label = `${s.subscriber}: ${room(state.subscribers, s)}`;
          if (link.title !== label) {
            link.title = label;
            link.setAttribute('aria-label', label);
            link.href = at('subscribers', s.subscriber);
          }
          link.style.left = `${(100 * Math.max(0, Math.min(1, part))).toFixed(2)}%`;
          link.dataset.level = headRoomLevel(state, s) || 'fine';
        },
      };
    });
    const oldest = list.oplog_oldest;
    const whole = new Date(list.newest_entry) - new Date(list.oplog_begins);
    retained.hidden = middle.hidden = !oldest;
    if (oldest) {
      retained.style.width = `${(100 * Math.min(1, (new Date(oldest) - new Date(list.oplog_begins)) / whole)).toFixed(2)}%`;
      middle.replaceChildren('the oplog begins ', when(oldest));
    }
    begins.replaceChildren(oldest ? 'the retained log begins ' : 'oldest entry ', when(list.oplog_begins));
    ends.replaceChildren('newest entry ', when(list.newest_entry));
    const length = whole / 1000;
    const log = `${oldest ? 'a' : 'an'} ${named_(list)} of ${duration(length)}${oldest ? `, the oplog has ${duration((new Date(list.newest_entry) - new Date(oldest)) / 1000)} of it` : ''}`;
    const first = all.slice(0, named).map(({s}) => `${s.subscriber}${s.head_room_seconds === null ? '' : ` (${s.head_room_seconds < 0 ? 'has left it' : duration(s.head_room_seconds)})`}`);
    text(near, all.length ? `${plural(all.length, 'subscriber')} in ${log}. Nearest to its end: ${first.join(', ')}${all.length > named ? ` and ${count(all.length - named)} after them` : ''}.` : `${log[0].toUpperCase()}${log.slice(1)}, without a subscriber that has a checkpoint.`);
  };
}

export const window_ = {id: 'window', title: 'Oplog window', build};
