// A page whose own name is resolved to an open node reads nothing (DNS rebinding), in Chromium and in Firefox, whatever it says of its browser; one at a name
// that nobody can register does. The node listens in plaintext on all addresses, and asks nobody who they are. In front of it a server serves the pages, at
// the same port, as the page's server does before its name is another address, and passes everything else on as it comes.
//
//   node test/browser/rebind.mjs        (CHROMIUM, FIREFOX, DEMO, STREAMER: where they are)

import {spawn} from 'node:child_process';
import {createServer} from 'node:net';
import {mkdtempSync, writeFileSync} from 'node:fs';
import {rm} from 'node:fs/promises';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {check, door, pause, until} from '../streams/rig.mjs';

const names = {'evil.example': 403, 'localhost.evil.example': 403, 'streamer.svc': 200, streamer: 200};

// attack runs in a page of each name, and returns with which status its origin's server answers it.
async function attack() {
  const status = (path, options) => fetch(path, options).then((answer) => answer.status, (e) => String(e));
  const all = [
    await status('/v1/status'),
    await status('/v1/status', {referrerPolicy: 'no-referrer', headers: {'User-Agent': 'curl/8.0', 'Accept-Language': ''}}),
    await status('/v1/snapshot?db=shop&coll=orders', {referrerPolicy: 'no-referrer', headers: {'User-Agent': '', 'Accept-Language': ''}}),
  ];
  await fetch(`/told?${location.hostname}=${all}`);
}

const browsers = {
  chromium: (profile, url) => [process.env.CHROMIUM ?? '/usr/bin/chromium', ['--headless=new', '--no-sandbox', '--disable-gpu', `--user-data-dir=${profile}`,
    `--host-resolver-rules=${Object.keys(names).map((n) => `MAP ${n} 127.0.0.1`).join(', ')}`, url]],
  firefox: (profile, url) => {
    writeFileSync(join(profile, 'user.js'), `user_pref("network.dns.localDomains", "${Object.keys(names)}");\n`);
    return [process.env.FIREFOX ?? '/usr/bin/firefox-esr', ['--headless', '--no-remote', '--profile', profile, url]];
  },
};

const directory = mkdtempSync(join(tmpdir(), 'rebind-'));
const children = [];

function run(file, args, env = {}) {
  const child = spawn(file, args, {stdio: 'ignore', detached: true, env: {...process.env, HOME: directory, ...env}});
  const ended = new Promise((done) => { child.on('exit', done); child.on('error', done); });
  const stop = async () => {
    try { process.kill(-child.pid, 'SIGKILL'); } catch { /* it has ended */ }
    await ended;
  };
  children.push(stop);
  return stop;
}

const free = () => new Promise((done) => {
  const s = createServer().listen(0, '127.0.0.1', () => { const {port} = s.address(); s.close(() => { done(port); }); });
});

const [mongo, etcd, http, grpc] = await Promise.all([free(), free(), free(), free()]);
try {
  run(process.env.DEMO ?? 'bin/demo', ['parts', '-mongodb', `127.0.0.1:${mongo}`, '-etcd', `127.0.0.1:${etcd}`]);
  run(process.env.STREAMER ?? 'bin/streamer', ['run'], {
    STREAMER_MONGODB_URI: `mongodb://127.0.0.1:${mongo}/?replicaSet=rs0`, STREAMER_ETCD_ENDPOINTS: `127.0.0.1:${etcd}`, STREAMER_NODE_ID: 'a',
    STREAMER_HTTP_LISTEN: `0.0.0.0:${http}`, STREAMER_HTTP_INSECURE: 'true', STREAMER_GRPC_LISTEN: `127.0.0.1:${grpc}`,
  });
  for (const end = Date.now() + 60_000; !(await fetch(`http://127.0.0.1:${http}/readyz`).catch(() => null))?.ok; await pause(200)) check(Date.now() < end, 'the node is not ready');
  for (const [browser, command] of Object.entries(browsers)) {
    const told = {};
    const front = await door(`127.0.0.1:${http}`, [], (r, w) => {
      for (const [host, all] of new URL(r.url, 'http://x').searchParams) told[host] = all;
      w.setHeader('Content-Type', 'text/html');
      w.end(r.url === '/' ? Object.keys(names).map((n) => `<iframe src="http://${n}:${new URL(front.origin).port}/page"></iframe>`).join('') : `<script>(${attack})()</script>`);
    });
    const profile = mkdtempSync(join(directory, browser));
    const stop = run(...command(profile, front.origin));
    await until(() => Object.keys(names).every((n) => told[n]), () => `${browser}: ${JSON.stringify(told)}: an answer from every page`);
    await stop();
    front.stop();
    for (const [name, status] of Object.entries(names)) {
      check(told[name].startsWith(`${status},${status},`) && (status === 403) === told[name].endsWith('403'), `${browser}: a page at ${name} got ${told[name]}`);
    }
    const sent = front.seen.filter((r) => r.headers.host.startsWith('evil.example'));
    console.log(`${browser}: ${JSON.stringify(told)}; what a page disguises: User-Agent ${sent[1].headers['user-agent'].slice(0, 12)}, Accept-Language "${sent[1].headers['accept-language']}"`);
  }
} finally {
  for (const stop of children.reverse()) await stop();
  await rm(directory, {recursive: true, force: true, maxRetries: 10}); // rmSync does not begin again
}
