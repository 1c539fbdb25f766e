import {button} from '../operate.js';
import {badge, count, duration, h, keyed, natural, plural, table, text} from '../ui.js';

const few = 25;

const reasons = {start: 'the subscription begins with it', loss: 'changes may have been missed', operator: 'an operator has asked for it'};

// all returns the snapshots of all subscribers, those under way first.
function all(list) {
  const found = list.subscribers.flatMap((s) => (s.session?.snapshots ?? s.snapshots ?? []).map((snapshot) => ({
    key: `${s.subscriber} ${snapshot.subscription}`, subscriber: s.subscriber, here: Boolean(s.session), connected: s.connected, ...snapshot,
  })));
  return found.sort((a, b) => Number(a.done) - Number(b.done) || natural(a.key, b.key));
}

function condition(s) {
  if (s.done) return ['fine', 'done'];
  if (s.paused) return ['info', 'paused'];
  if (s.connected === false) return ['away', 'waits for its subscriber'];
  return ['info', s.here ? 'reading' : 'under way'];
}

function build(root) {
  const table_ = table('Snapshots', [
    {title: 'Subscriber'}, {title: 'Subscription'}, {title: 'Why'}, {title: 'State'}, {title: 'Documents read', number: true}, {title: 'Left, about', number: true},
    {title: 'Operate', operate: true},
  ]);
  const empty = h('p.empty', 'No snapshot is under way.');
  const shown = h('p.help', {role: 'status'});
  root.append(empty, h('div.scroll', table_.element), shown);

  const make = () => {
    let seen = null;
    const [name, subscription, reason, state, place, left] = [h('span.name'), h('span'), h('span'), h('span'), h('span'), h('span')];
    const bar = h('progress', {max: 1});
    const act = (caption, what) => button(caption, () => ({
      label: `${caption} the snapshot of ${seen.subscriber}`, what,
      path: `/v1/subscribers/snapshots?${new URLSearchParams({subscriber: seen.subscriber, subscription: seen.subscription, operation: caption.toLowerCase()})}`,
    }));
    const pause = act('Pause', 'Nothing more is read for it until it is resumed. Its changes are delivered meanwhile.');
    const resume = act('Resume', 'It continues after the last page that it has read.');
    const cancel = act('Cancel', 'The rest is not read. The subscriber keeps what it has, and receives changes only.');
    const element = table_.row(name, subscription, reason, state, h('span.charted', bar, place), left, h('span', pause.element, resume.element, cancel.element));
    return {
      element,
      update(s) {
        seen = s;
        text(name, s.subscriber);
        text(subscription, s.subscription);
        text(reason, reasons[s.reason] ?? s.reason);
        state.replaceChildren(badge(...condition(s)));
        const part = s.done ? 1 : s.estimated > 0 ? Math.min(1, s.read / s.estimated) : 0;
        bar.value = part;
        bar.setAttribute('aria-label', `Documents read for ${s.subscriber}, ${s.subscription}`);
        text(place, s.done || !s.estimated ? count(s.read) : `${count(s.read)} of ${count(s.estimated)} (${Math.floor(part * 100)} %)`);
        text(left, s.done ? '–' : duration(s.remaining_seconds ?? null));
        const of = `the snapshot of ${s.subscriber}, ${s.subscription}`;
        pause.show(s.here && !s.done && !s.paused, `Pause ${of}`);
        resume.show(s.here && !s.done && Boolean(s.paused), `Resume ${of}`);
        cancel.show(s.here && !s.done, `Cancel ${of}`);
      },
    };
  };

  return ({subscribers: list}) => {
    if (!list) return;
    const found = all(list);
    const rows = found.slice(0, few);
    keyed(table_.body, rows, (r) => r.key, make);
    empty.hidden = found.length > 0;
    table_.element.hidden = found.length === 0;
    text(shown, rows.length < found.length ? `${count(rows.length)} of ${plural(found.length, 'snapshot')}` : '');
  };
}

export const snapshots = {id: 'snapshots', title: 'Snapshots', build};
