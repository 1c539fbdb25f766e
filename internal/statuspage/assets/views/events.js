// Events as they happen, or again from a place in the log, and what a filter makes of them. It receives them from /v1/events as every client does.

import {Refusal, follow, get, hasToken} from '../api.js';
import {headOf, timeOf} from '../place.js';
import {curl, goProgram, parameters, typescript} from '../snippets.js';
import {attempt, verdicts} from '../tester.js';
import {badge, clock, count, h, keyed, plural, rate, text, when} from '../ui.js';

const most = 200; // events that are kept
const window_ = 5000; // milliseconds that the rate is of
const operations = ['insert', 'update', 'replace', 'delete', 'drop', 'rename', 'dropDatabase', 'invalidate'];
const levels = {insert: 'fine', update: 'info', replace: 'info', delete: 'warning'};

// pretty indents JSON without reading it: numbers keep all their digits.
function pretty(json) {
  let depth = 0;
  const line = () => `\n${'  '.repeat(depth)}`;
  return json.replaceAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|\{\s*\}|\[\s*\]/g, (part, offset) => {
    if (part[0] === '"') return part;
    if (part === '{' || part === '[') {
      if (/^.\s*[}\]]/.test(json.slice(offset, offset + 3))) return part;
      depth++;
      return part + line();
    }
    if (part === '}' || part === ']') {
      if (/[{[]\s?$/.test(json.slice(Math.max(0, offset - 2), offset))) return part;
      depth--;
      return line() + part;
    }
    return part === ',' ? part + line() : `${part} `;
  });
}

// field makes an input with its label.
function field(label, input) {
  return h('label.field', h('span', label), input);
}

// errorPlace shows a line of a filter, and below it where in it something is wrong.
function errorPlace(source, message) {
  const found = /line (\d+), column (\d+)/.exec(message);
  const line = found && source.split('\n')[found[1] - 1];
  if (!line) return '';
  return `${line}\n${' '.repeat(Math.min(Number(found[2]) - 1, line.length))}^`;
}

// filterField makes the input of a filter, and shows what the node says of it.
function filterField(root) {
  const input = h('textarea', {id: 'filter', rows: 2, maxlength: 4096, spellcheck: 'false', autocomplete: 'off', autocapitalize: 'off', 'aria-describedby': 'filter-error', placeholder: 'doc.total >= 100 && doc.status == "paid"'});
  const what = h('p');
  const place = h('pre');
  const remedy = h('p');
  const code = h('code');
  const box = h('div.refused', {id: 'filter-error', role: 'alert', hidden: true}, h('p', code, ' ', what), place, remedy);
  root.append(h('label.field.wide', h('span', 'Filter, an expression in CEL'), input), box);
  return {
    input,
    // show shows why something was refused, or nothing.
    show(error) {
      box.hidden = !error;
      const ofFilter = /^STRM-FILTER-/.test(error?.code ?? '');
      if (ofFilter) input.setAttribute('aria-invalid', 'true');
      else input.removeAttribute('aria-invalid');
      if (!error) return;
      text(code, error.code ?? '');
      text(what, error.message);
      text(place, ofFilter ? errorPlace(input.value, error.message) : '');
      place.hidden = !place.textContent;
      text(remedy, error.remedy ?? '');
    },
  };
}

// past makes what the log still has of a document, on demand.
function past() {
  const said = h('p.help', {role: 'status'});
  const list = h('ol.log', {'aria-label': 'Changes of the document, oldest first'});
  return {
    element: h('div', said, list),
    clear() {
      text(said, '');
      list.replaceChildren();
    },
    async show({db, coll, id}) {
      list.replaceChildren();
      text(said, 'Looking …');
      const question = new URLSearchParams({db, coll, id});
      try {
        let n = 0;
        for (let next = ''; ;) {
          if (next) question.set('from', next);
          const found = await get(`/v1/changes?${question}`);
          list.append(...found.changes.map((c) => h('li', when(c.time), h('span', badge(levels[c.operation] ?? 'away', c.operation), ' ', c.changed.join(', ')))));
          list.append(...found.losses.map((l) => h('li', {'data-level': 'critical'}, h('span', `Changes may be missing here: ${l.reason}`))));
          n += found.changes.length;
          next = found.next ?? '';
          text(said, `${plural(n, 'change')} of this document ${next && n < most ? 'so far' : 'in the log'}, read up to ${clock(found.read_to)}${found.begins ? `; the log begins at ${clock(found.begins)}` : ''}${next && n >= most ? '; there are more: streamer history shows them' : ''}.`);
          if (!next || n >= most) return;
        }
      } catch (error) {
        text(said, error instanceof Refusal ? error.advice : 'The node does not answer.');
      }
    },
  };
}

// row makes a row of the list: what happened to which document, and on demand the whole event.
function row(resume) {
  const [at, op, ns, key, verdict] = [h('time'), h('span'), h('span.ns'), h('code.key'), h('span')];
  const whole = h('pre', {tabindex: 0});
  const id = h('code');
  const copy = h('button', {type: 'button', click: () => navigator.clipboard.writeText(seen.id)}, 'Copy id');
  const from = h('button', {type: 'button', click: () => resume(seen.id)}, 'Start after it');
  const before = past();
  const history = h('button', {type: 'button', click: () => {
    history.disabled = true; // a second reading would add to the same list
    before.show(seen.document).finally(() => { history.disabled = false; });
  }}, 'History');
  const details = h('details', {toggle: () => { if (details.open) text(whole, pretty(seen.text)); }}, h('summary', at, op, ns, key, verdict), h('p.bar', 'Resume after ', id, copy, from, history), before.element, whole);
  let seen = null;
  return {
    element: h('li', details),
    update(e) {
      if (seen !== e) {
        seen = e;
        text(at, e.at ? clock(e.at) : '');
        op.replaceChildren(badge(e.level, e.op));
        text(ns, e.ns);
        text(key, e.key);
        text(id, e.id);
        history.hidden = !e.document;
        before.clear();
      }
      const [level, word] = verdicts[e.verdict] ?? [];
      verdict.replaceChildren(...(word ? [badge(level, word)] : []));
    },
  };
}

// member returns the value of a member of an object as it is written in the object's JSON, null without it.
function member(json, name) {
  let depth = 0;
  let last = ''; // the last string of the object itself: before a colon, the name of a member
  let begin = 0; // of the value, once it is found
  for (let at = 0; at < json.length; at++) {
    const c = json[at];
    if (c === '"') {
      const quote = at;
      while (json[++at] !== '"') if (json[at] === '\\') at++;
      if (depth === 1) last = json.slice(quote, at + 1);
    } else if (depth === 1 && c === ':' && JSON.parse(last) === name) begin = at + 1;
    else if (depth === 1 && begin && ',}'.includes(c)) return json.slice(begin, at).trim();
    else if ('{['.includes(c)) depth++;
    else if ('}]'.includes(c)) depth--;
  }
  return null;
}

// keyIn returns the _id of an event as it is written in its JSON, null without one: its digits are those of the document.
export function keyIn(json) {
  const key = member(json, 'documentKey');
  return key && member(key, '_id');
}

// event reads what the list shows of one.
function event(type, data, id, json, before, n) {
  const t = data.clusterTime?.$timestamp?.t;
  const lost = type !== 'message';
  const key = lost ? null : keyIn(json);
  return {
    n, document: key && {db: data.ns.db, coll: data.ns.coll, id: key}, id, before, text: json, at: t ? t * 1000 : timeOf(id), op: lost ? type : data.operationType, level: lost ? 'critical' : levels[data.operationType] ?? 'away',
    ns: lost ? (data.namespaces ?? []).join(', ') : [data.ns?.db, data.ns?.coll].filter(Boolean).join('.'), key: lost ? data.reason ?? '' : data.key ?? '', verdict: '', lost,
  };
}

function open(root) {
  const db = h('input', {type: 'text', maxlength: 255, spellcheck: 'false', autocomplete: 'off', list: 'seen-db'});
  const coll = h('input', {type: 'text', maxlength: 255, spellcheck: 'false', autocomplete: 'off'});
  const op = h('select', h('option', {value: ''}, 'all'), operations.map((o) => h('option', o)));
  const start = h('select', {change: () => form_()},
    h('option', {value: 'now'}, 'now'), h('option', {value: 'earliest'}, 'the earliest'), h('option', {value: 'time'}, 'a time'), h('option', {value: 'id'}, 'after an id'));
  const time = h('input', {type: 'datetime-local', step: 1});
  const id = h('input', {type: 'text', spellcheck: 'false', autocomplete: 'off', maxlength: 8192});
  const [timeField, idField] = [field('Time', time), field('Id', id)];
  const begin = h('button.primary', {type: 'submit'}, 'Start');
  const pause = h('button', {type: 'button', hidden: true, click: () => (stream ? stop() : listen(last))}, 'Pause');
  const clear = h('button', {type: 'button', click: () => { events = []; said = ''; draw(); }}, 'Clear');
  const test = h('button', {type: 'button', click: () => tryFilter()}, 'Test the filter on these');
  const form = h('form.fields', {submit: (e) => { e.preventDefault(); restart(); }}, field('Database', db), field('Collection', coll), field('Operation', op), field('Begin at', start), timeField, idField);
  const filter = filterField(form);
  form.append(h('div.bar', begin, pause, clear, test));
  const status = h('p.help', {role: 'status'});
  const verdict = h('p', {role: 'status'});
  const list = h('ol.events', {'aria-label': 'Events, newest first'});
  const language = h('select', {'aria-label': 'Language of the program', change: () => program()}, h('option', {value: 'curl'}, 'curl'), h('option', {value: 'go'}, 'Go'), h('option', {value: 'ts'}, 'TypeScript'));
  const code = h('pre', {tabindex: 0, 'aria-label': 'Program that receives these events'});
  const copy = h('button', {type: 'button', click: () => navigator.clipboard.writeText(code.textContent)}, 'Copy');
  const programs = h('details.program', {toggle: () => program()}, h('summary', 'As a program'), h('div.bar', language, copy), code);
  root.append(form, status, verdict, list, programs);

  let stream = null; // of the events, an AbortController
  let testing = null; // of a test
  let asked = null; // what the stream was asked for
  let events = []; // the oldest first
  let last = ''; // the id to resume from
  let total = 0;
  let serial = 0; // of the rows of the list
  let arrivals = []; // when events arrived
  let said = '';
  let problem = '';
  let state = null;

  function question() {
    const own = start.value === 'time' && !time.value ? 'now' : start.value;
    return {
      db: db.value, coll: coll.value, ops: op.value ? [op.value] : [], filter: filter.input.value.trim(), start: own === 'id' ? 'now' : own,
      time: own === 'time' ? new Date(time.value) : null, after: own === 'id' ? id.value.trim() : '', page: location.origin,
      gateway: state?.status?.nodes.find((n) => n.node === state.status.node)?.address || `${location.hostname}:9090`, token: hasToken(),
    };
  }

  function form_() {
    timeField.hidden = start.value !== 'time';
    idField.hidden = start.value !== 'id';
  }

  function program() {
    if (!programs.open) return;
    const write = {curl, go: goProgram, ts: typescript}[language.value];
    text(code, write(question()));
  }

  // restart begins anew with what the form says.
  function restart() {
    stop();
    filter.show(null);
    events = [];
    total = 0;
    said = '';
    asked = question();
    last = asked.after;
    listen(last, true);
  }

  function stop() {
    stream?.abort();
    stream = null;
    draw();
  }

  async function listen(from, first = false) {
    const own = stream = new AbortController();
    problem = '';
    draw();
    const path = `/v1/events?${new URLSearchParams(parameters({...asked, after: first ? asked.after : from}))}`;
    try {
      await follow(path, from, own.signal, (type, data, now, json) => {
        if (own !== stream) return;
        if (type === 'open') return draw();
        if (type === 'progress') {
          last = now;
          return draw();
        }
        if (type === 'error' || type === 'unavailable') {
          problem = `${data.code}: ${data.message}. ${data.remedy}`;
          return draw();
        }
        if (data.code && data.message) { // about the filter
          said = `${data.code}: ${data.message}`;
          return draw();
        }
        events.push(event(type, data, now, json, last, ++serial));
        total++;
        if (events.length > most) events.shift();
        last = now;
        arrivals.push(performance.now());
        return draw();
      });
      if (own === stream) problem ||= 'The node has ended the stream.';
    } catch (error) {
      if (own !== stream) return;
      if (error instanceof Refusal) filter.show(error);
      else problem = 'The node does not answer.';
    }
    if (own === stream) stop();
  }

  // tryFilter evaluates the filter on the events of the list that have an event before them.
  async function tryFilter() {
    const q = {...(asked ?? question()), filter: filter.input.value.trim() || 'true'};
    const tested = events.filter((e) => !e.lost && headOf(e.before));
    filter.show(null);
    if (!tested.length) {
      text(verdict, 'There are no events to test it on yet: start the view without a filter, or let some more come.');
      return;
    }
    testing?.abort();
    const own = testing = new AbortController();
    text(verdict, 'Testing …');
    for (const e of events) e.verdict = '';
    try {
      const {by, said: failures} = await attempt(q, tested, own.signal);
      if (own !== testing) return;
      const counts = {};
      for (const e of tested) {
        e.verdict = by.get(e.id) ?? '';
        if (e.verdict) counts[e.verdict] = (counts[e.verdict] ?? 0) + 1;
      }
      const parts = Object.entries(verdicts).filter(([v]) => counts[v]).map(([v, [, word]]) => `${count(counts[v])} ${word}`);
      text(verdict, `Of ${plural(by.size, 'event')}, as the node evaluates it: ${parts.join(' · ') || 'nothing is known in time'}. ${failures.join('. ')}`);
    } catch (error) {
      if (own !== testing) return;
      text(verdict, '');
      if (error instanceof Refusal) filter.show(error);
      else text(verdict, 'The test was not finished: the node does not answer.');
    }
    draw();
  }

  let drawing = false;
  function draw() {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => {
      drawing = false;
      const now = performance.now();
      arrivals = arrivals.slice(-100_000).filter((a) => now - a < window_);
      pause.hidden = !asked;
      text(pause, stream ? 'Pause' : 'Resume');
      const course = !asked ? 'Choose what to see, and start.' : stream ? `${rate(arrivals.length / (window_ / 1000))} events/s, ${count(total)} received` : `Paused after ${plural(total, 'event')}`;
      text(status, [course, events.length < total ? `the last ${count(events.length)} are shown` : '', problem, said].filter(Boolean).join(' · '));
      status.dataset.level = problem ? 'critical' : '';
      keyed(list, [...events].reverse(), (e) => e.n, () => row((from) => { start.value = 'id'; id.value = from; form_(); restart(); }));
      program();
    });
  }

  form_();
  draw();
  return {
    update(next) {
      state = next;
      draw();
    },
    close() {
      stream?.abort();
      testing?.abort();
      stream = testing = null;
    },
  };
}

export const events = {path: 'events', title: 'Live events', menu: true, open};
