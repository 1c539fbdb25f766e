import {address, button} from '../operate.js';
import {badge, count, duration, h, keyed, natural, table, text} from '../ui.js';
import {at} from '../address.js';

// levels are the levels of badges by the state of a sink.
export const levels = {publishing: 'fine', retrying: 'warning', waiting: 'warning', stalled: 'warning', paused: 'info', halted: 'critical'};

// reached says how far in the oplog a subscriber is, from 0 at its beginning to 1 at its end; null while unknown.
function reached(list, s) {
  const length = (new Date(list?.newest_entry) - new Date(list?.oplog_begins)) / 1000;
  if (!list?.newest_entry || !list.oplog_begins || !(length > 0) || s?.lag_seconds === null || s?.lag_seconds === undefined) return null;
  return Math.max(0, Math.min(1, 1 - s.lag_seconds / length));
}

function build(root) {
  const list = table('Sinks', [
    {title: 'Sink'}, {title: 'State here'}, {title: 'Reached of the oplog', number: true}, {title: 'Lag', number: true}, {title: 'Behind, about', number: true},
    {title: 'Under way', number: true}, {title: 'Published', number: true}, {title: 'Repeated', number: true}, {title: 'Dead letters', number: true},
    {title: 'Operate', operate: true},
  ]);
  const empty = h('p.empty', 'No sinks are configured.');
  const note = h('p.help', 'State and counts are those of this node since its start. A pause holds on all nodes.');
  root.append(empty, h('div.scroll', list.element), note);

  const make = () => {
    let seen = null;
    const [name, error, state_] = [h('a.name'), h('span.help.line'), h('span')];
    const bar = h('progress', {max: 1});
    const [place, lag, behind, under, published, repeated, dead] = Array.from({length: 7}, () => h('span'));
    const act = (caption, what) => button(caption, () => ({
      label: `${caption} sink ${seen}`, path: address`/v1/sinks/${seen}/${caption.toLowerCase()}`, what,
    }));
    const pause = act('Pause', 'It publishes nothing on any node until it is resumed. Its changes wait in the oplog, which must reach back that far.');
    const resume = act('Resume', 'It continues on all nodes after its checkpoint.');
    const element = list.row([name, error], state_, h('span.charted', bar, place), lag, behind, under, published, repeated, dead, h('span', pause.element, resume.element));
    return {
      element,
      update({sink: s, subscriber, list: all}) {
        seen = s.sink;
        text(name, s.sink);
        name.href = at('sinks', s.sink);
        text(error, s.error ?? '');
        state_.replaceChildren(badge(levels[s.state] ?? 'away', s.state));
        const part = reached(all, subscriber);
        bar.hidden = part === null;
        bar.value = part ?? 0;
        bar.setAttribute('aria-label', `How far in the oplog sink ${s.sink} is`);
        text(place, part === null ? '–' : `${(Math.floor(part * 1000) / 10).toFixed(1)} %`);
        text(lag, duration(subscriber?.lag_seconds));
        text(behind, count(subscriber?.entries_behind));
        [[under, s.under_way], [published, s.published], [repeated, s.retried], [dead, s.dead_letters]].forEach(([e, n]) => text(e, count(n)));
        pause.show(s.state !== 'paused', `Pause sink ${s.sink}`);
        resume.show(['paused', 'halted', 'waiting'].includes(s.state), `Resume sink ${s.sink}`);
      },
    };
  };

  return ({sinks: known, subscribers: all}) => {
    if (!known) return;
    const rows = [...known.sinks].sort((a, b) => natural(a.sink, b.sink)).map((sink) => ({sink, list: all, subscriber: all?.subscribers.find((s) => s.kind === 'shared' && s.subscriber === sink.subscriber)}));
    keyed(list.body, rows, (r) => r.sink.sink, make);
    empty.hidden = rows.length > 0;
    list.element.hidden = note.hidden = rows.length === 0;
  };
}

export const sinks = {id: 'sinks', title: 'Sinks', cluster: true, build};
