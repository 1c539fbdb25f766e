// What the tests of pages share: a browser, a demo behind it, and checks.

import {spawn} from 'node:child_process';
import {readFileSync, readdirSync} from 'node:fs';
import {createInterface} from 'node:readline';
import {chromium} from 'playwright-core';

export function check(ok, text) {
  if (!ok) throw new Error(text);
}

// launch starts the browser. Whatever a page complains about fails the test.
export async function launch() {
  const browser = await chromium.launch({executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu']});
  const complaints = [];
  return {
    browser,
    complaints,
    async page(options = {}, expected = /^$/) {
      const context = await browser.newContext({viewport: {width: 1280, height: 900}, colorScheme: 'light', reducedMotion: 'reduce', ...options});
      const page = await context.newPage();
      page.setDefaultTimeout(300_000);
      page.on('console', (m) => { if (m.type() !== 'info' && m.type() !== 'log' && !expected.test(m.text())) complaints.push(m.text()); });
      page.on('pageerror', (e) => complaints.push(e.stack));
      return page;
    },
  };
}

// demo starts nodes under load and returns where their pages are, and the processes by node.
export async function demo(...args) {
  const process_ = spawn(process.env.DEMO ?? 'bin/demo', ['-http', '127.0.0.1:0', '-grpc', '127.0.0.1:0', ...args], {stdio: ['ignore', 'pipe', 'ignore']});
  const ended = new Promise((resolve) => { process_.on('exit', resolve); });
  const lines = createInterface({input: process_.stdout});
  let sites = null;
  for await (const line of lines) {
    const found = /HTTP at ([^;]+);|^A node is running on http:..([^,]+),/.exec(line);
    if (found) {
      sites = (found[1] ?? found[2]).split(', ').map((a) => `http://${a}/`);
      break;
    }
  }
  process_.stdout.resume();
  check(sites, 'the demo has ended before its nodes ran');
  const pids = new Map();
  const tasks = `/proc/${process_.pid}/task`;
  const children = readdirSync(tasks).flatMap((task) => readFileSync(`${tasks}/${task}/children`, 'utf8').split(' ').filter(Boolean));
  for (const pid of children) {
    const id = /STREAMER_NODE_ID=([^\0]+)/.exec(readFileSync(`/proc/${pid}/environ`, 'utf8'));
    if (id) pids.set(id[1], Number(pid));
  }
  return {
    sites,
    pids,
    async stop() {
      process_.kill('SIGINT');
      await ended;
    },
  };
}
