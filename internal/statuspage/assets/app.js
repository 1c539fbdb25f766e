// Asks the node again and again, keeps what it has answered in one state, and has the sections show it.

import {at} from './address.js';
import {Refusal, follow, get, hasToken, setToken} from './api.js';
import {attention} from './attention.js';
import * as history from './history.js';
import {operating} from './operate.js';
import {sections} from './sections.js';
import * as theme from './theme.js';
import {duration, h, keyed, plural, prose, text} from './ui.js';
import {find, views} from './views.js';

const state = {
  status: null, // of /v1/status
  limited: null, // why the identity may not see it
  subscribers: null,
  gaps: null,
  sinks: null,
  reports: null,
  history: null, // of /v1/history
  errors: {}, // by path
  taken: {}, // when the last answer came, by path
  notices: [], // newest last
  missed: 0,
  answered: 0, // when the node answered last
  unanswered: 0, // requests in a row
  moved: new Map(), // when a partition's owner changed, as seen here
  codes: {},
};

const byId = (id) => document.getElementById(id);
const maxNotices = 1000;

// --- what the page shows

const alerts = h('ul.alerts');
const verdict = h('h2', {id: 'attention-title'}, 'Looking …');
const updates = [];
const home = h('div.home');
const narrow = matchMedia('(max-width: 760px)');

function build() {
  const main = byId('main');
  const top = h('section.attention', {id: 'attention', 'aria-labelledby': 'attention-title', 'aria-live': 'polite'}, verdict, alerts);
  main.append(top, home);
  for (const v of views) if (v.menu) byId('contents').append(h('a.view', {href: at(v.path)}, v.title));
  for (const s of sections) {
    const age = h('p.age', {hidden: true});
    const root = h('section.panel', {id: s.id, 'aria-labelledby': `${s.id}-title`}, h('h2', {id: `${s.id}-title`}, s.title), foldButton(s), age);
    home.append(root);
    byId('contents').append(h('a', {href: `#${s.id}`}, s.title));
    const link = byId('contents').lastElementChild;
    const update = s.build(root);
    updates.push((now) => {
      root.hidden = link.hidden = Boolean(s.cluster && state.limited);
      const seconds = Math.floor(history.viewAge(state, now));
      age.hidden = !s.seen || seconds <= history.oldAfter;
      text(age, `As last seen ${duration(seconds)} ago: no news of other nodes comes.`);
      update(state, now);
    });
  }
}

// foldButton shows and hides a section on a narrow screen, where all but the first begin hidden.
function foldButton(s) {
  const button = h('button.fold', {type: 'button', 'aria-expanded': 'true', 'aria-label': s.title, click: () => fold(s.id, button.getAttribute('aria-expanded') === 'true')});
  if (narrow.matches && s !== sections[0]) button.setAttribute('aria-expanded', 'false');
  return button;
}

function fold(id, hide) {
  byId(id)?.querySelector('.fold')?.setAttribute('aria-expanded', String(!hide));
}

let shown = null; // the view beside the overview: {root, update, close}

// go shows what the address says: a view, or the overview and in it a section.
function go() {
  shown?.close?.();
  shown?.root.remove();
  shown = null;
  closeMenu();
  const found = find(location.hash);
  home.hidden = Boolean(found);
  for (const link of byId('contents').children) {
    if (found && link.getAttribute('href') === at(found.view.path)) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  if (found) {
    const title = h('h2', {id: 'view-title', tabindex: -1}, found.view.title, found.name ? ` ${found.name}` : '');
    const root = h('section.panel.view', {'aria-labelledby': 'view-title'}, h('p.back', h('a', {href: '#overview'}, 'Overview')), title);
    byId('main').append(root);
    shown = {root, ...found.view.open(root, found.name)};
    shown.update?.(state, Date.now());
    title.focus();
    scrollTo(0, 0);
  } else if (location.hash.length > 1) {
    fold(location.hash.slice(1), false);
    byId(location.hash.slice(1))?.scrollIntoView();
  }
}

function closeMenu() {
  byId('menu').setAttribute('aria-expanded', 'false');
}

let drawing = false;

// show draws once for everything that changes before the next frame.
function show() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    const now = Date.now();
    showTop();
    showAlerts(attention(state));
    if (home.hidden) shown?.update?.(state, now);
    else for (const update of updates) update(now);
  });
}

// unknown reports whether nothing is known of the node yet.
const unknown = () => !state.status && !state.limited;

function showTop() {
  const s = state.status;
  document.body.dataset.operates = Boolean(s?.may_operate);
  text(byId('cluster'), s?.cluster || 'Streamer');
  text(byId('node'), s ? `seen from ${s.node} · ${s.version}` : '');
  const away = state.unanswered > 1;
  const connection = byId('connection');
  connection.dataset.state = unknown() ? 'connecting' : away ? 'away' : 'live';
  text(connection, unknown() ? 'connecting' : away ? 'no answer' : 'live');
  document.body.dataset.stale = away;
  byId('token').hidden = !hasToken();
}

function showAlerts(items) {
  const critical = items.filter((i) => i.level === 'critical').length;
  const section = byId('attention');
  section.dataset.level = critical ? 'critical' : items.length ? 'warning' : unknown() ? 'unknown' : 'fine';
  document.title = `${items.length ? `(${items.length}) ` : ''}${state.status ? `${state.status.cluster} · ` : ''}Streamer`;
  const waiting = unknown() && !items.length;
  text(verdict, waiting ? 'Looking …' : items.length ? `${plural(items.length, 'thing')} ${items.length === 1 ? 'needs' : 'need'} attention` : 'Nothing needs attention');
  keyed(alerts, items, (i) => i.id, (item) => {
    const [level, what] = [h('span.level'), h('span')];
    const title = h('h3', level, what);
    const detail = h('p.detail');
    const todo = h('p.todo');
    const meaning = h('p');
    const code = h('code');
    const runbook = h('a', {target: '_blank', rel: 'noreferrer'}, 'Runbook');
    const more = h('details', h('summary', 'What it means'), meaning, h('p', code, ' ', runbook));
    const element = h('li.alert', {'data-level': item.level}, title, detail, todo, more);
    return {
      element,
      update(i) {
        element.dataset.level = i.level;
        const known = state.codes[i.code];
        text(level, i.level);
        text(what, ` ${i.title}`);
        text(detail, i.detail ?? '');
        const remedy = i.todo || known?.remedy || '';
        prose(todo, remedy);
        todo.hidden = !remedy;
        prose(meaning, known ? `${known.summary[0].toUpperCase()}${known.summary.slice(1)}. ${known.meaning}` : '');
        text(code, i.code ?? '');
        runbook.hidden = !i.runbook;
        if (i.runbook) runbook.href = i.runbook;
        more.hidden = !known;
      },
    };
  });
}

// --- what the page asks

let asleep = null; // ends the pause before the next round
let timers = [];

async function ask(path, took) {
  try {
    const answer = await get(path);
    delete state.errors[path];
    state.answered = Date.now();
    state.unanswered = 0;
    state.taken[path] = Date.now();
    took(answer);
  } catch (error) {
    if (error instanceof Refusal) {
      state.answered = Date.now();
      state.unanswered = 0;
      if (error.status === 401) return identify(error);
      if (error.status === 403 && path === '/v1/status') state.limited = error;
      else if (error.status === 403 && clusterOnly.has(path)) delete state.errors[path]; // the section is hidden
      else state.errors[path] = error;
    } else {
      state.unanswered++;
    }
  }
  show();
  return undefined;
}

function tookStatus(s) {
  state.limited = null;
  const before = state.status?.partitions.owners;
  const named = (status, i) => status.nodes[i]?.node;
  const now = Date.now();
  if (before && before.length === s.partitions.owners.length) {
    s.partitions.owners.forEach((o, p) => {
      const was = named(state.status, before[p]);
      if (was !== named(s, o)) state.moved.set(p, {at: now, from: was});
    });
  }
  for (const [p, m] of state.moved) if (now - m.at > 10_000) state.moved.delete(p);
  state.status = s;
  history.note('rate', s.nodes.reduce((sum, n) => sum + n.rate, 0));
  const kept = new Set();
  for (const n of s.nodes) {
    kept.add(`node/${n.node}/rate`).add(`node/${n.node}/lag`);
    history.note(`node/${n.node}/rate`, n.rate);
    history.note(`node/${n.node}/lag`, n.lag_seconds);
  }
  history.prune('node', kept);
  history.noteRates(s.partitions.rates);
}

function tookSubscribers(list) {
  state.subscribers = list;
  const kept = new Set();
  for (const s of list.subscribers) {
    kept.add(`lag/${s.kind}/${s.subscriber}`);
    history.note(`lag/${s.kind}/${s.subscriber}`, s.lag_seconds);
  }
  history.prune('lag', kept);
}

function tookReports(list) {
  state.reports = list;
}

const questions = [
  {path: '/v1/status', every: 2000, took: tookStatus},
  {path: '/v1/subscribers', every: 5000, took: tookSubscribers},
  {path: '/v1/gaps', every: 10_000, took: (log) => { state.gaps = log; }},
  {path: '/v1/sinks', every: 3000, cluster: true, took: (list) => { state.sinks = list; }},
  {path: '/v1/history', every: 15_000, cluster: true, took: (past) => { state.history = past; }},
  {path: '/v1/reports?limit=50', every: 10_000, cluster: true, took: tookReports},
];

// clusterOnly are the questions that only identities which may see the cluster ask.
const clusterOnly = new Set(questions.filter((q) => q.cluster).map((q) => q.path));

function pause(ms) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    timers.push({timer, resolve});
  });
}

function wake() {
  for (const {timer, resolve} of timers) {
    clearTimeout(timer);
    resolve();
  }
  timers = [];
}

// awake waits until the page can be seen and has what it takes to ask.
async function awake() {
  while (document.hidden || byId('access').open) await new Promise((resolve) => { (asleep ??= []).push(resolve); });
}

function rouse() {
  const waiting = asleep ?? [];
  asleep = null;
  for (const resolve of waiting) resolve();
  wake();
}

async function repeat({path, every, cluster, took}) {
  for (;;) {
    await awake();
    if (!cluster || state.status && !state.limited) await ask(path, took);
    await pause(path === '/v1/status' && state.limited ? 30_000 : cluster && !state.status ? 500 : every);
  }
}

let last = '';
let following = null;

async function followNotices() {
  for (let wait = 1000; ; wait = Math.min(wait * 2, 15_000)) {
    await awake();
    following = new AbortController();
    try {
      last = await follow('/v1/notices', last, following.signal, (type, data, id) => {
        wait = 1000;
        if (type === 'open') delete state.errors['/v1/notices'];
        else if (type === 'missed') state.missed += data.missed;
        else if (data?.kind) {
          if (last.split('-')[0] !== id.split('-')[0]) state.notices = []; // another process: it sends its history again
          state.notices.push(data);
          if (state.notices.length > maxNotices) state.notices.shift();
        } else if (data?.message) state.errors['/v1/notices'] = new Refusal(429, data);
        last = id || last;
        show();
      });
    } catch (error) {
      if (error instanceof Refusal && error.status === 401) identify(error);
      else if (error instanceof Refusal) state.errors['/v1/notices'] = error;
      show();
    }
    await pause(wait);
  }
}

// --- who asks

function identify(refusal) {
  const dialog = byId('access');
  if (dialog.open || refusal.outdated) return;
  if (hasToken()) {
    setToken('', false);
    text(byId('access-why'), `The token was refused: ${refusal.message}. ${refusal.remedy}`);
  }
  byId('access-token').value = '';
  dialog.showModal();
}

function listenForTokens() {
  const dialog = byId('access');
  byId('access-form').addEventListener('submit', (event) => {
    event.preventDefault();
    setToken(byId('access-token').value.trim(), byId('access-keep').checked);
    byId('access-token').value = '';
    dialog.close();
    rouse();
  });
  dialog.addEventListener('cancel', (event) => event.preventDefault());
  byId('token').addEventListener('click', () => {
    setToken('', false);
    following?.abort();
    location.reload();
  });
}

build();
theme.choose(byId('theme'), show);
byId('menu').addEventListener('click', (event) => {
  const button = event.currentTarget;
  button.setAttribute('aria-expanded', String(button.getAttribute('aria-expanded') !== 'true'));
});
addEventListener('hashchange', go);
go();
listenForTokens();
operating(wake);
document.addEventListener('visibilitychange', () => { if (!document.hidden) rouse(); });
setInterval(() => { if (!document.hidden) show(); }, 1000);
fetch('/assets/codes.json').then((r) => r.json()).then((codes) => {
  state.codes = codes;
  show();
}).catch(() => {}); // remedies of the page's own stay
for (const q of questions) repeat(q);
followNotices();
