// A page of another origin opens nothing on an open node, whatever address it uses: in Chromium and in Firefox. The node is a demo's. The page sends
// what pages can send without leave to each of its addresses; what each browser sent is told by a server beside it, which takes the same requests.
//
//   node test/browser/foreign.mjs        (CHROMIUM, FIREFOX: where they are; DEMO: the demo)

import {spawn} from 'node:child_process';
import {createServer} from 'node:http';
import {mkdtempSync} from 'node:fs';
import {rm} from 'node:fs/promises';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {check, demo} from './page.mjs';

const hosts = ['127.0.0.1', 'localhost', '0.0.0.0', '[::ffff:127.0.0.1]', '127.0.0.2', '0', '2130706433', '[::1]', '[::]'];

// attack runs in the page.
async function attack(hosts, ports) {
  const ways = {
    fetch: (url) => fetch(url, {mode: 'no-cors', referrerPolicy: 'no-referrer', credentials: 'include', headers: {Accept: 'text/event-stream'}}),
    cors: (url) => fetch(url),
    image: (url) => { new Image().src = url; },
    stream: (url) => { new EventSource(url); },
    frame: (url) => { const f = document.createElement('iframe'); f.referrerPolicy = 'no-referrer'; f.src = url; document.body.append(f); },
    media: (url) => { const v = document.createElement('video'); v.src = url; v.load(); document.body.append(v); },
    script: (url) => { const s = document.createElement('script'); s.referrerPolicy = 'no-referrer'; s.src = url; document.body.append(s); },
    post: (url) => fetch(url, {method: 'POST', mode: 'no-cors'}),
  };
  const waits = [];
  for (const port of ports) {
    for (const host of hosts) {
      for (const [way, send] of Object.entries(ways)) {
        const name = encodeURIComponent(`${way} ${host}`);
        waits.push(Promise.resolve().then(() => send(`http://${host}:${port}/v1/events?db=demo&subscriber=${name}`)).catch(() => {}));
      }
    }
    await Promise.race([Promise.allSettled(waits), new Promise((done) => { setTimeout(done, 10_000); })]);
  }
  await fetch('/done');
}

// serve starts a server on all addresses and returns its port.
function serve(answer) {
  const server = createServer(answer);
  return new Promise((resolve) => { server.listen(0, '127.0.0.1', () => { resolve({port: server.address().port, stop: () => { server.closeAllConnections(); server.close(); }}); }); });
}

const browsers = {
  chromium: (profile, url) => [process.env.CHROMIUM ?? '/usr/bin/chromium', ['--headless=new', '--no-sandbox', '--disable-gpu', `--user-data-dir=${profile}`, url]],
  firefox: (profile, url) => [process.env.FIREFOX ?? '/usr/bin/firefox-esr', ['--headless', '--no-remote', '--profile', profile, url]],
};

const node = await demo('-nodes', '2');
try {
  const target = new URL(node.sites[0]).port;
  const names = async () => {
    const list = await (await fetch(`http://127.0.0.1:${target}/v1/subscribers`)).json();
    return JSON.stringify(list);
  };
  for (const [name, command] of Object.entries(browsers)) {
    const silent = []; // requests of which the browser did not say who sent them
    let seen = 0;
    const beside = await serve((r, w) => {
      seen++;
      if (!r.headers.origin && !r.headers['sec-fetch-site']) silent.push(decodeURIComponent(r.url));
      w.end();
    });
    let done;
    const finished = new Promise((resolve) => { done = resolve; });
    const evil = await serve((r, w) => {
      if (r.url === '/done') done();
      w.setHeader('Content-Type', 'text/html');
      w.end(`<!doctype html><body><script>(${attack})(${JSON.stringify(hosts)}, [${beside.port}, ${target}])</script>`);
    });
    const profile = mkdtempSync(join(tmpdir(), 'foreign-'));
    const [path, args] = command(profile, `http://localhost:${evil.port}/`);
    const browser = spawn(path, args, {stdio: 'ignore', env: {...process.env, HOME: profile}});
    const ended = new Promise((resolve) => { browser.on('exit', resolve); });
    const failed = new Promise((_, reject) => { browser.on('error', reject); setTimeout(() => reject(new Error(`${name} did not finish`)), 600_000).unref(); });
    await Promise.race([finished, failed]);
    const after = await names();
    browser.kill('SIGKILL');
    await ended;
    beside.stop();
    evil.stop();
    await rm(profile, {recursive: true, force: true, maxRetries: 10}); // rmSync does not begin again
    check(seen > 10, `${name} sent ${seen} requests only`);
    for (const host of hosts) check(!after.includes(` ${host}"`), `${name} opened a stream at ${host}: ${after}`);
    console.log(`${name}: ${seen} requests to the server beside the node, ${silent.length} of them without Origin and Sec-Fetch-Site; nothing was opened`);
    for (const url of silent.slice(0, 20)) console.log(`  ${url}`);
  }
  // The same requests are let in for a program, so that the names above would have been there.
  const program = new AbortController();
  await fetch(`http://127.0.0.1:${target}/v1/events?db=demo&subscriber=program`, {signal: program.signal, headers: {'User-Agent': 'node'}});
  check((await names()).includes('program'), 'a program has no stream with a name');
  program.abort();
} finally {
  await node.stop();
}
