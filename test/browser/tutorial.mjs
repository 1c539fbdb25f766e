// The tutorial, end to end: its files and commands are taken out of docs/tutorial.md and run against the demo, its page in Chromium. Into the folder that is
// named goes the page's picture.

import {execFileSync, spawn} from 'node:child_process';
import {mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join, resolve} from 'node:path';
import {createInterface} from 'node:readline';
import {check, demo, launch} from './page.mjs';

const pictures = process.argv[2];
const text = readFileSync('docs/tutorial.md', 'utf8');

// file returns the block of code that the document puts into a file, for the node of this test.
function file(name, site) {
  const found = text.split(`\`${name}\`:\n`)[1]?.match(/^\n```\w+\n([^]*?)\n```\n/);
  check(found, `the tutorial has no file ${name}`);
  return found[1].replaceAll('http://127.0.0.1:8080', site.replace(/\/$/, '')) + '\n';
}

// commands returns the lines of shell of a section.
function commands(section) {
  const block = text.split(`\n## ${section}`)[1]?.split('\n## ')[0].match(/```sh\n([^]*?)```/);
  check(block, `section ${section} has no commands`);
  return block[1].trim().split('\n');
}

const folder = mkdtempSync(join(tmpdir(), 'tutorial-'));
symlinkSync(resolve('.'), join(folder, 'streamer'));
const project = join(folder, 'orders');
const {sites, stop} = await demo();
const {browser, complaints, page: open} = await launch();
const children = [];

// begin starts a command of the tutorial in the project.
function begin(command, ...args) {
  const child = spawn(command, args, {cwd: project, stdio: ['ignore', 'pipe', 'ignore']});
  const ended = new Promise((done) => { child.on('exit', done); });
  children.push(async () => {
    child.kill('SIGINT');
    await ended;
  });
  return child;
}

try {
  // As it stands, but for the clone: npm pack leaves its file in the project's folder, and cd follows the link's name.
  const script = commands('2. Make a project').join('\n')
    .replace('cd client/typescript && npm pack', `npm pack --silent ${resolve('client/typescript')}`)
    .replaceAll('../../../orders', project)
    .replace('../streamer/client/typescript/', '../');
  execFileSync('sh', ['-euc', script], {cwd: folder, stdio: ['ignore', 'ignore', 'inherit']});
  for (const name of ['index.html', 'orders.js']) writeFileSync(join(project, name), file(`orders/${name}`, sites[0]));

  const [server, ...args] = commands('4. Open it')[0].split(' ');
  begin(server, '-u', ...args).stdout.resume();
  const page = await open({}, /ERR_INTERNET_DISCONNECTED|Failed to fetch|favicon|reconnect|network|404/i);
  for (let n = 0; ; n++) { // until the server listens
    try {
      await page.goto('http://127.0.0.1:8000/');
      break;
    } catch (e) {
      if (n === 100) throw e;
      await new Promise((done) => { setTimeout(done, 100); });
    }
  }
  await page.locator('#orders tr').nth(5).waitFor();
  await page.locator('#summary', {hasText: /^\d+ orders, €[\d,.]+$/}).waitFor();

  // agrees waits until the page shows what MongoDB has: the shop changes meanwhile, so that both are read until they agree.
  const agrees = async () => {
    for (let n = 0; n < 300; n++) {
      const [shown, stored] = await page.evaluate(async (site) => {
        const answer = await fetch(`${site}v1/snapshot?db=shop&coll=orders&limit=5000&filter=${encodeURIComponent('doc.total >= 100')}`);
        const {documents} = await answer.json();
        const rows = [...document.querySelectorAll('#orders tr')].map((row) => `${row.cells[0].textContent} ${row.cells[1].textContent} ${row.cells[2].textContent}`);
        return [rows.sort(), documents.map((d) => `${d._id} ${d.customer.name} ${d.status}`).sort()];
      }, sites[0]);
      if (shown.length > 5 && JSON.stringify(shown) === JSON.stringify(stored)) return;
    }
    throw new Error('the page does not show the orders of MongoDB');
  };
  await agrees();
  if (pictures) {
    mkdirSync(pictures, {recursive: true});
    await page.setViewportSize({width: 900, height: 620});
    await page.screenshot({path: join(pictures, 'tutorial.png')});
  }
  const first = await page.locator('#summary').innerText();
  await page.context().setOffline(true);
  await page.context().setOffline(false);
  await page.waitForFunction((before) => document.querySelector('#summary').textContent !== before, first);
  await agrees();

  // The program is stopped and started: it continues after the last order. That one may come again, if it was stopped before it saved the position.
  writeFileSync(join(project, 'pack.js'), file('orders/pack.js', sites[0]));
  const [node, program] = commands('5. Handle each paid order')[0].split(' ');
  const packed = [];
  for (const least of [3, 6]) {
    const child = begin(node, program);
    for await (const line of createInterface({input: child.stdout})) {
      check(/^pack order \d+$/.test(line), `it printed ${line}`);
      packed.push(line);
      if (packed.length >= least) break;
    }
    await children.pop()();
  }
  const again = packed[2] === packed[3] ? packed.toSpliced(3, 1) : packed;
  check(new Set(again).size === again.length, `an order was packed twice: ${packed}`);
  check(complaints.length === 0, complaints.join('\n'));
} finally {
  for (const end of children) await end();
  await browser.close();
  await stop();
  rmSync(folder, {recursive: true});
}
console.log('tutorial: ok');
