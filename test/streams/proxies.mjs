// Proxies in front of a node, with what is usual in their configuration, and with what holds
// streams back where a server does not ask for the contrary: compression of everything, and
// buffers. A change reaches the client through each as soon as without it, and a client that leaves
// is gone at the node.
//
//   node test/streams/proxies.mjs [NAME…]        (Express and Node's proxies from npm; nginx, haproxy, caddy, varnishd and apache2 from Debian, in PROXIES if they are
//                                                 not installed; DEMO)

import {spawn} from 'node:child_process';
import {mkdtempSync, writeFileSync} from 'node:fs';
import {rm} from 'node:fs/promises';
import {createServer} from 'node:http';
import {createServer as createSocket} from 'node:net';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {check, demo, follow, pause, until} from './rig.mjs';
import compression from 'compression';
import express from 'express';
import httpProxy from 'http-proxy';
import {createProxyMiddleware} from 'http-proxy-middleware';

const directory = mkdtempSync(join(tmpdir(), 'proxies-'));
const debian = process.env.PROXIES ?? '';
const machine = {x64: 'x86_64', arm64: 'aarch64'}[process.arch];

// free returns a port that nobody listens at.
const free = () => new Promise((done) => {
  const s = createSocket().listen(0, '127.0.0.1', () => { const {port} = s.address(); s.close(() => { done(port); }); });
});

// program runs a server with a configuration; FILE and DIRECTORY stand for where they are.
function program(file, args, text) {
  const config = join(directory, `${Math.random().toString(36).slice(2)}.conf`);
  writeFileSync(config, text.replaceAll('DIRECTORY', directory));
  const child = spawn(file, args.map((a) => a.replaceAll('FILE', config).replaceAll('DIRECTORY', directory)), {
    stdio: ['ignore', 'ignore', process.env.VERBOSE ? 'inherit' : 'ignore'], env: {
      ...process.env, HOME: directory, XDG_DATA_HOME: directory, XDG_CONFIG_HOME: directory,
      PATH: `${process.env.PATH}:${debian}/usr/sbin:${debian}/usr/bin`,
      ...debian && {LD_LIBRARY_PATH: ['', '/varnish'].map((d) => `${debian}/usr/lib/${machine}-linux-gnu${d}`).join(':')},
    },
  });
  const ended = new Promise((done) => { child.on('exit', done); child.on('error', (e) => { console.log(`${file}: ${e.message}`); done(); }); });
  return async () => { child.kill('SIGTERM'); await ended; };
}

const listen = (handler) => async (port) => {
  const server = createServer(handler);
  await new Promise((done) => { server.listen(port, '127.0.0.1', done); });
  return () => { server.closeAllConnections(); server.close(); };
};

const nginx = (port, address, more) => program('nginx', ['-c', 'FILE', '-p', 'DIRECTORY'], `
daemon off; master_process off; pid DIRECTORY/nginx-${port}.pid; error_log stderr;
events {}
http {
  access_log off; client_body_temp_path DIRECTORY/body; proxy_temp_path DIRECTORY/proxy; fastcgi_temp_path DIRECTORY/f; uwsgi_temp_path DIRECTORY/u; scgi_temp_path DIRECTORY/s;
  ${more}
  server { listen 127.0.0.1:${port}; location / { proxy_pass http://${address}; } }
}`);

const haproxy = (port, address, more) => program('haproxy', ['-db', '-f', 'FILE'], `
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
frontend f
  bind 127.0.0.1:${port}
  ${more}
  default_backend b
backend b
  server s ${address}
`);

const apache = (port, address, more) => program('apache2', ['-X', '-f', 'FILE'], `
ServerRoot DIRECTORY
ServerName localhost
PidFile DIRECTORY/apache-${port}.pid
ErrorLog /dev/stderr
Listen 127.0.0.1:${port}
LoadModule mpm_event_module ${debian}/usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module ${debian}/usr/lib/apache2/modules/mod_authz_core.so
LoadModule filter_module ${debian}/usr/lib/apache2/modules/mod_filter.so
LoadModule deflate_module ${debian}/usr/lib/apache2/modules/mod_deflate.so
LoadModule proxy_module ${debian}/usr/lib/apache2/modules/mod_proxy.so
LoadModule proxy_http_module ${debian}/usr/lib/apache2/modules/mod_proxy_http.so
${more}
ProxyPass / http://${address}/
`);

// proxies start each at a port, in front of an address.
const proxies = {
  'Express, compression, http-proxy-middleware': (port, address) =>
    listen(express().use(compression({threshold: 0})).use(createProxyMiddleware({target: `http://${address}`, changeOrigin: true})))(port),
  'http-proxy': (port, address) => {
    const proxy = httpProxy.createProxyServer({target: `http://${address}`});
    proxy.on('error', (_, __, w) => { w.destroy(); });
    proxy.on('proxyReq', (upstream, _, w) => { w.on('close', () => { upstream.destroy(); }); }); // else it reads on when its client has left
    return listen((r, w) => { proxy.web(r, w); })(port);
  },
  nginx: (port, address) => nginx(port, address, ''),
  'nginx, gzip for everything': (port, address) => nginx(port, address, 'gzip on; gzip_types *; gzip_proxied any; gzip_min_length 0;'),
  haproxy: (port, address) => haproxy(port, address, ''),
  'haproxy, compression': (port, address) => haproxy(port, address, 'filter compression\n  compression algo gzip\n  compression type text/event-stream application/json'),
  caddy: (port, address) => program('caddy', ['run', '--adapter', 'caddyfile', '--config', 'FILE'], `{\n admin off\n}\nhttp://127.0.0.1:${port} {\n encode gzip\n reverse_proxy ${address}\n}\n`),
  varnish: (port, address) => program('varnishd', ['-F', '-n', `DIRECTORY/varnish-${port}`, '-a', `127.0.0.1:${port}`, '-j', 'none', '-s', 'malloc,20m', '-f', 'FILE'],
    `vcl 4.1;\nbackend default { .host = "${address.split(':')[0]}"; .port = "${address.split(':')[1]}"; }\n`),
  apache2: (port, address) => apache(port, address, ''),
  'apache2, deflate for everything': (port, address) => apache(port, address, 'SetOutputFilter DEFLATE'),
};

const node = await demo('-rate', '60');
const asked = process.argv.slice(2);
const stops = [];
const clients = async () => Number(/^streamer_sse_clients (\d+)/m.exec(await (await fetch(`http://${node.address}/metrics`)).text())?.[1]);
try {
  // Some few changes a second, so that what waits for a full buffer waits long.
  const path = `/v1/events?db=shop&coll=orders&filter=${encodeURIComponent('int(key._id) % 100 == 0')}`;
  const at = new Map();
  const direct = follow(`http://${node.address}${path}`, (id, when) => { at.set(id, when); }, {'Accept-Encoding': 'identity'});
  await direct.heads;
  stops.push(direct.close);
  const runs = await Promise.all(Object.entries(proxies).filter(([name]) => asked.length === 0 || asked.includes(name)).map(async ([name, start]) => {
    const port = await free();
    stops.push(await start(port, node.address));
    const run = {name, arrived: []};
    for (const end = Date.now() + 120_000; ; await pause(100)) { // until it listens
      const answer = await fetch(`http://127.0.0.1:${port}/livez`).catch(() => null);
      if (answer?.ok) break;
      check(Date.now() < end, `${name} does not listen: ${answer?.status}`);
    }
    const begun = Date.now();
    const stream = follow(`http://127.0.0.1:${port}${path}`, (id, when) => { run.arrived.push([id, when]); }, {'Accept-Encoding': 'gzip, deflate'});
    stream.heads.then((headers) => { run.headers = headers; });
    await until(() => run.headers, `the beginning of a stream through ${name}`);
    run.begun = Date.now() - begun;
    run.close = stream.close;
    stops.push(stream.close);
    return run;
  }));
  await until(() => runs.every((r) => r.arrived.length >= 5), () => `five changes through ${runs.filter((r) => r.arrived.length < 5).map((r) => `${r.name} (${r.arrived.length})`)}`)
    .catch((e) => { console.log(e.message); process.exitCode = 1; });
  for (const r of runs) {
    const arrived = [...r.arrived];
    await until(() => arrived.every(([id]) => at.has(id)), 'what came through a proxy also comes without it');
    // A proxy that waits for more sends several late; a machine that stands still makes one late.
    const late = arrived.map(([id, when]) => when - at.get(id)).sort((a, b) => a - b);
    const most = late.at(-2);
    const ok = late.length >= 5 && most < 1_000;
    console.log(`${r.name}: begins after ${r.begun} ms, ${late.length} changes, all but one at most ${most} ms after the node, that one ${late.at(-1)}; Content-Encoding: ${r.headers.get('content-encoding') ?? 'none'}: ${ok ? 'ok' : 'HELD BACK'}`);
    if (!ok) process.exitCode = 1;
  }
  const before = await clients();
  for (const r of runs) r.close();
  let left;
  for (const end = Date.now() + 120_000; (left = await clients()) > 1 && Date.now() < end; await pause(200));
  console.log(`${before} streams at the node, ${left} when their clients have left`);
  if (left !== 1) process.exitCode = 1;
} finally {
  for (const stop of stops.reverse()) await stop();
  await node.stop();
  await rm(directory, {recursive: true, force: true, maxRetries: 10}); // rmSync does not begin again
}
