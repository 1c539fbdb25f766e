// Clients of event streams as people use them: npm's libraries in Node, in Chromium and in Firefox,
// Python's standard library and requests, Go's libraries. Each follows a running node, is cut three
// times, and gets every change once.
//
//   node test/streams/clients.mjs [PLACE…]        (node, chromium, firefox, python, go; CHROMIUM, FIREFOX, DEMO, GOCLIENT: where they are)

import {spawn} from 'node:child_process';
import {mkdtempSync, readFileSync} from 'node:fs';
import {rm} from 'node:fs/promises';
import {tmpdir} from 'node:os';
import {dirname, join} from 'node:path';
import {createInterface} from 'node:readline';
import {fileURLToPath} from 'node:url';
import {check, demo, door, follow, Reading, until} from './rig.mjs';
import {inNode, inPages} from './libraries.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const cuts = [4_000, 9_000, 9_000];
const path = '/v1/events?db=shop&coll=orders';

// programs are clients in other languages. They print the id and the data of each event.
const programs = {
  python: Object.fromEntries(['urllib', 'requests'].map((name) => [`Python ${name}`, ['python3', [join(here, 'client.py'), name]]])),
  go: Object.fromEntries(['r3labs', 'tmaxmax', 'launchdarkly'].map((name) => [`Go ${name}`, [process.env.GOCLIENT ?? 'bin/streamclient', [name]]])),
};

const browsers = {
  chromium: (profile, url) => [process.env.CHROMIUM ?? '/usr/bin/chromium', ['--headless=new', '--no-sandbox', '--disable-gpu', `--user-data-dir=${profile}`, url]],
  firefox: (profile, url) => [process.env.FIREFOX ?? '/usr/bin/firefox-esr', ['--headless', '--no-remote', '--profile', profile, url]],
};

const imports = {
  imports: {
    eventsource: '/node_modules/eventsource/dist/index.js',
    'eventsource-client': '/node_modules/eventsource-client/dist/default.esm.js',
    'eventsource-parser': '/node_modules/eventsource-parser/dist/index.js',
    'eventsource-parser/stream': '/node_modules/eventsource-parser/dist/stream.js',
    'fetch-event-stream': '/node_modules/fetch-event-stream/esm/mod.js',
    'extended-eventsource': '/node_modules/extended-eventsource/dist/index.esm.js',
    'reconnecting-eventsource': '/node_modules/reconnecting-eventsource/build/esm/reconnecting-eventsource.js',
    '@microsoft/fetch-event-source': '/node_modules/@microsoft/fetch-event-source/lib/esm/index.js',
    'sse.js': '/node_modules/sse.js/lib/sse.js',
  },
};

// page serves what a browser loads: the page of one library at its own origin, and the libraries.
// Pages post what they receive.
const page = (name, event) => (r, w) => {
  if (r.method === 'POST') {
    let body = '';
    r.on('data', (chunk) => { body += chunk; });
    r.on('end', () => { for (const {id, data} of JSON.parse(body)) event(id, data); w.end(); });
    return;
  }
  if (r.url === '/') {
    w.setHeader('Content-Type', 'text/html');
    w.end(`<!doctype html><head><script type="importmap">${JSON.stringify(imports)}</script></head><body><script type="module">
      import {inPages} from '/libraries.mjs';
      let queue = [];
      (async () => {
        for (;;) {
          await new Promise((done) => { setTimeout(done, 100); });
          const told = queue;
          queue = [];
          if (told.length > 0) await fetch('/', {method: 'POST', body: JSON.stringify(told)});
        }
      })();
      try {
        const start = await inPages[${JSON.stringify(name)}]();
        start(new URL(${JSON.stringify(path)}, location.origin).href, (id, data) => { queue.push({id, data}); });
      } catch (e) {
        queue.push({id: 'failed', data: String(e?.stack ?? e?.type ?? e)});
      }
    </script>`);
    return;
  }
  try {
    const file = readFileSync(join(here, r.url.endsWith('js') ? r.url : `${r.url}.js`));
    w.setHeader('Content-Type', 'text/javascript');
    w.end(file);
  } catch {
    w.writeHead(404).end();
  }
};

// open opens a browser with a page that has a frame for each origin.
async function open(command, origins) {
  const profile = mkdtempSync(join(tmpdir(), 'streams-'));
  const frames = await door('127.0.0.1:1', [], (_, w) => {
    w.setHeader('Content-Type', 'text/html');
    w.end(origins.map((o) => `<iframe src="${o}/"></iframe>`).join(''));
  });
  const [file, args] = command(profile, frames.origin);
  const browser = spawn(file, args, {stdio: 'ignore', detached: true, env: {...process.env, HOME: profile}});
  const ended = new Promise((done) => { browser.on('exit', done); });
  return async () => {
    try { process.kill(-browser.pid, 'SIGKILL'); } catch { /* it has ended */ }
    await ended;
    frames.stop();
    await rm(profile, {recursive: true, force: true, maxRetries: 10}); // rmSync does not begin again
  };
}

const places = process.argv.slice(2);
const node = await demo('-rate', '50');
const all = [];
const whole = new Map(); // the data of each id
const reference = follow(`http://${node.address}${path}`, (id, _, data) => { all.push(id); whole.set(id, data); }, {'Accept-Encoding': 'identity'});
const stops = [];
const clients = [];
try {
  await reference.heads;
  await until(() => all.length > 0, 'the first event');
  const add = async (place, name) => {
    const client = {place, name, reading: new Reading()};
    client.door = await door(node.address, cuts, page(name, (id, data) => { client.reading.event(id, data); }));
    clients.push(client);
    stops.push(client.door.stop);
    return client;
  };
  for (const place of places.length > 0 ? places : ['node', 'chromium', 'firefox', 'python', 'go']) {
    if (place === 'node') {
      for (const [name, library] of Object.entries(inNode)) {
        const client = await add(place, name);
        stops.push((await library())(client.door.origin + path, (id, data) => { client.reading.event(id, data); }));
      }
    } else if (browsers[place]) {
      const origins = [];
      for (const name of Object.keys(inPages)) origins.push((await add(place, name)).door.origin);
      stops.push(await open(browsers[place], origins));
    } else {
      for (const [name, [file, args]] of Object.entries(programs[place])) {
        const client = await add(place, name);
        const child = spawn(file, [...args, client.door.origin + path], {stdio: ['ignore', 'pipe', 'inherit']});
        const ended = new Promise((done) => { child.on('exit', done); });
        createInterface({input: child.stdout}).on('line', (line) => {
          const [id, data] = line.split('\t', 2);
          if (!data?.startsWith('{"code":')) client.reading.event(id, data); // a notice is no change
        });
        stops.push(async () => { child.kill('SIGKILL'); await ended; });
      }
    }
  }
  const told = (c) => `${c.place}: ${c.name}: ${c.reading.ids.length} events, cut ${c.door.cuts()} times, ${c.door.seen.length} requests`;
  // Every client is cut so often, and has received something afterwards.
  const done = (c) => {
    if (c.door.seen.length > cuts.length) c.reading.most = Math.min(c.reading.most, c.reading.ids.length + 20);
    return c.reading.ids.length >= c.reading.most;
  };
  await until(() => clients.every(done), () => clients.filter((c) => !done(c)).map((c) => `${told(c)}, ${JSON.stringify(c.door.seen.slice(-1))}`).join('\n'))
    .catch((e) => { console.log(e.message); process.exitCode = 1; });
  for (const c of clients) {
    await until(() => all.includes(c.reading.ids.at(-1)) || c.reading.ids.length === 0, 'the last event').catch(() => {});
    const wrong = c.reading.judge(all, whole);
    console.log(`${told(c)}: ${wrong || 'complete'}`);
    if (wrong) process.exitCode = 1;
  }
} finally {
  reference.close();
  for (const stop of stops.reverse()) await stop();
  await node.stop();
}
