// The status page in a real browser: with a demo of three nodes behind it, one of which is killed; with a large cluster; with access control. Writes
// the screenshots of the documentation into the folder that is its argument.

import * as events from './events.mjs';
import {check, demo, launch} from './page.mjs';
import * as large from './large.mjs';

const folder = process.argv[2];

// shot takes a picture of the page from its top, as high as said.
async function shot(page, name, most = 2200) {
  await page.evaluate(() => {
    document.activeElement.blur();
    scrollTo(0, 0);
  });
  await page.waitForTimeout(1500); // it is drawn once a second
  const {width, height} = await page.evaluate(() => ({width: innerWidth, height: document.documentElement.scrollHeight}));
  await page.screenshot({path: `${folder}/${name}.png`, fullPage: true, clip: {x: 0, y: 0, width, height: Math.min(height, most)}});
}
const {browser, complaints, page: open} = await launch();
const json = (route, body, status = 200) => route.fulfill({status, contentType: 'application/json', body: JSON.stringify(body)});
const named = (page, id, text) => page.locator(`#${id}`, {hasText: text}).first().waitFor();
let running = null;

async function threeNodes() {
  running = await demo('-nodes', '3', '-rate', '300', '-partitions', '64', '-gateways', '6', '-subscriptions', '24');
  const page = await open({}, /Failed to load resource|ERR_/);
  await page.goto(running.sites[0]);
  await page.locator('#nodes tbody tr').nth(2).waitFor();
  await named(page, 'overview', 'all 64');
  await named(page, 'attention', 'Nothing needs attention');
  await page.locator('#subscribers tbody tr').nth(5).waitFor();
  check(await page.locator('#connection').innerText() === 'live', 'the page is not live');

  // By keyboard alone.
  const map = page.getByRole('slider', {name: 'Partitions'});
  await map.focus();
  await page.keyboard.press('End');
  check(/^Partition 63: node-[123], [a-z]+$/.test(await map.getAttribute('aria-valuetext')), 'the last partition is not told of');
  await page.keyboard.press('Home');
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowDown');
  await page.locator('#partitions h3', {hasText: 'Partition 11'}).waitFor();

  // Until charts show something.
  await page.waitForFunction(() => (document.querySelector('#overview .spark .line').getAttribute('d') ?? '').split('L').length > 22);
  await shot(page, 'status');
  await page.emulateMedia({colorScheme: 'dark'});
  await shot(page, 'status-dark');
  await page.emulateMedia({colorScheme: 'light'});

  // A node dies: what it had moves, and the page says what to do.
  process.kill(running.pids.get('node-2'), 'SIGKILL');
  await named(page, 'attention', 'No heartbeat comes from node-2.');
  await named(page, 'attention', 'What it means');
  await named(page, 'handoffs', 'node-2 is dead');
  await named(page, 'overview', 'all 64');
  await shot(page, 'status-node-lost');

  // The node of the page stands still.
  process.kill(running.pids.get('node-1'), 'SIGSTOP');
  await named(page, 'attention', 'This node does not answer');
  process.kill(running.pids.get('node-1'), 'SIGCONT');
  await page.locator('#connection[data-state=live]').waitFor();
  await page.context().close();
}

async function serveLarge(page) {
  await page.route('**/v1/status', (r) => json(r, large.status()));
  await page.route('**/v1/subscribers', (r) => json(r, large.subscribers()));
  await page.route('**/v1/gaps', (r) => json(r, large.gaps()));
  await page.route('**/v1/sinks', (r) => json(r, large.sinks()));
  await page.route('**/v1/reports?*', (r) => json(r, large.reports()));
  await page.route(/[/]v1[/]history/, (r) => json(r, large.history()));
  await page.route(/[/]v1[/]subscribers[/]detail/, (r) => json(r, {places: [], places_total: 0, filters: [], filters_total: 0, history: []}));
  let told = false;
  await page.route('**/v1/notices', (r) => {
    r.fulfill({contentType: 'text/event-stream', body: told ? ': nothing\n\n' : large.notices()});
    told = true;
  });
}

async function largeCluster() {
  const page = await open({}, /status of 503/);
  await serveLarge(page);
  let viewAge = 0.4;
  let {problems} = large.status();
  await page.route('**/v1/status', (r) => json(r, {...large.status(), problems, view_age_seconds: viewAge}));
  await page.goto(running.sites[2]);
  await named(page, 'overview', 'all 4,096');
  await named(page, 'attention', 'near the end of the oplog');
  await named(page, 'subscribers', '25 of 300 subscribers');
  await page.getByRole('progressbar', {name: 'Documents read for gateway/orders-005, orders'}).waitFor();
  await page.getByRole('progressbar', {name: 'Components that make progress'}).waitFor();
  await named(page, 'sinks', 'connection refused');
  await named(page, 'supervisor', '102 of 108 components make progress');
  await named(page, 'supervisor', 'node-9 until');
  await named(page, 'attention', 'The component hub makes no progress.');
  check(await page.locator('.operate:visible').count() === 0, 'who may not operate is shown a button');
  // One row for a node whose components are missed for one cause, and names as people count.
  const missed = await page.getByRole('table', {name: 'Components with misses'}).locator('tbody .name').allInnerTexts();
  check(missed.join() === 'node-4/tail,node-7/hub,node-11', `the rows of the supervisor are ${missed}`);
  await named(page, 'supervisor', '4 components: hub, tail, leases, sinks');
  const nodes = await page.locator('#nodes tbody .name').allInnerTexts();
  check(nodes.join() === Array.from({length: 12}, (_, i) => `node-${i + 1}`).join(), `the nodes are in the order ${nodes}`);
  // An hour in charts, and everybody on the bar of the oplog.
  await page.getByRole('img', {name: 'Events per second'}).waitFor();
  const drawn = await page.locator('.chart', {hasText: 'Events per second'}).evaluate((c) => ({lines: c.querySelectorAll('.line').length, axis: c.querySelectorAll('text').length}));
  check(drawn.lines === 8 && drawn.axis >= 7, `a chart has ${drawn.lines} lines, and ${drawn.axis} numbers at its axes`);
  const stages = page.locator('.chart', {hasText: 'changes take their time'});
  check((await stages.locator('.legend').innerText()).split('\n').join() === 'node,until written,until acknowledged', 'the stages that were measured are not those of the chart');
  check((await stages.innerText()).includes('at most 1.2s'), `the slowest stage is not told: ${await stages.innerText()}`);
  check(await page.getByRole('list', {name: 'Subscribers by their place in the oplog'}).getByRole('link').count() === 300, 'not every subscriber is on the bar of the oplog');
  await named(page, 'window', 'Nearest to its end: gateway/search-042 (8m20s), gateway/search-077');
  await named(page, 'window', 'in a log of 1d1h, the oplog has 8h20m of it');
  const kept = await page.locator('#window .retained').evaluate((r) => r.getBoundingClientRect().width / r.parentElement.getBoundingClientRect().width);
  check(Math.abs(kept - 2 / 3) < 0.02, `the retained part is ${kept} of the bar of the log`);
  await page.locator('#window').screenshot({path: `${folder}/status-window.png`});
  // What is older than it should be is grey, and says how old it is.
  viewAge = 40;
  await named(page, 'overview', '40s old');
  check(await page.locator('#overview .value[data-level=old]').count() === 3, 'the numbers of a node that is cut off look fresh');
  viewAge = 0.4;
  await page.locator('#overview .value[data-level=old]').first().waitFor({state: 'detached'});
  // What cannot be read has a card, unless a problem explains it, or did when it was asked for last.
  let refusal = 'STRM-ETCD-UNREACHABLE';
  await page.route('**/v1/gaps', (r) => {
    if (refusal === 'wait') return;
    if (refusal) json(r, {code: refusal, message: 'it does not answer'}, 503);
    else json(r, large.gaps());
  });
  await named(page, 'attention', 'The losses cannot be read');
  // A problem of a sink explains nothing, whatever its code; that of another checkpoint neither.
  const problem = (subject, code, cause) => ({...large.status().problems[0], subject, code, cause});
  const etcd = problem('etcd', refusal, 'etcd does not answer.');
  problems = [problem('sink/a', refusal, 'The sink a is late.')];
  await named(page, 'attention', 'The sink a is late.');
  check((await page.locator('#attention').innerText()).includes('The losses cannot be read'), 'a problem of a sink explains why the losses cannot be read');
  problems = [etcd];
  await page.locator('#attention', {hasText: 'The losses cannot be read'}).waitFor({state: 'detached'});
  check((await page.locator('#attention').innerText()).includes('etcd does not answer.'), 'the problem is not shown');
  refusal = 'wait';
  problems = [];
  await page.locator('#attention', {hasText: 'etcd does not answer.'}).waitFor({state: 'detached'});
  check(!(await page.locator('#attention').innerText()).includes('The losses cannot be read'), 'what a problem explained has a card when it is over');
  refusal = '';
  const corrupt = 'STRM-CHECKPOINT-CORRUPT';
  problems = [etcd, problem('sink/a', corrupt, 'The sink a has no checkpoint.')];
  let unread = `${corrupt}: /streamer/checkpoints/b/7: unexpected end`;
  await page.route('**/v1/subscribers', (r) => json(r, {...large.subscribers(), error: unread}));
  await named(page, 'attention', 'Some checkpoints cannot be read');
  await named(page, 'attention', 'The sink a has no checkpoint.');
  check((await page.locator('#attention').innerText()).includes('/checkpoints/b/7'), 'the checkpoint of a subscriber that is away is not named');
  // Each of the joined errors needs an explanation.
  unread = `${etcd.code}: it does not answer\nSTRM-CONFIG-BAD-VALUE: a name is too long`;
  await named(page, 'attention', 'a name is too long');
  unread = `${etcd.code}: it does not answer`;
  await page.locator('#attention', {hasText: 'Some checkpoints cannot be read'}).waitFor({state: 'detached'});
  ({problems} = large.status());
  unread = undefined;
  await page.getByRole('button', {name: 'Show all 300'}).click();
  await page.locator('#subscribers tbody tr').nth(299).waitFor();
  await page.getByRole('button', {name: 'Show fewer'}).click();
  await page.getByRole('searchbox', {name: 'Find subscribers by name'}).fill('mail-0');
  await named(page, 'subscribers', '20 of 300 subscribers');
  await page.getByRole('searchbox', {name: 'Find subscribers by name'}).fill('');
  // The page of a subscriber has its own losses apart from those of everybody.
  for (const [subscriber, losses] of [['gateway/search-042', 'it was away for longer than the oplog lasts'], ['gateway/search-077', 'It has lost nothing that others have had.']]) {
    await page.evaluate((name) => { location.hash = `#/subscribers/${encodeURIComponent(name)}`; }, subscriber);
    const said = page.locator('section.view', {hasText: 'Its own losses'});
    await said.getByText(losses).waitFor();
    await said.getByRole('list', {name: 'Losses of everybody, newest first'}).getByText('the oplog no longer reaches back').waitFor();
    check(await said.getByText('shop.carts').count() === (subscriber.endsWith('042') ? 1 : 0), `${subscriber} has losses of another one`);
  }
  await page.evaluate(() => { location.hash = ''; });
  await named(page, 'subscribers', '25 of 300 subscribers');
  await page.waitForFunction(() => (document.querySelector('#overview .spark .line').getAttribute('d') ?? '').split('L').length > 8);
  await shot(page, 'status-large', 2300);

  // On a telephone nothing is wider than the screen.
  await page.setViewportSize({width: 390, height: 844});
  await page.emulateMedia({colorScheme: 'dark'});
  await page.reload();
  await named(page, 'attention', 'near the end of the oplog');
  check(!await page.locator('#nodes table').isVisible(), 'a section is not folded on a telephone');
  check(await page.evaluate(() => document.documentElement.scrollHeight) < 5000, 'the page is as long as without folds');
  await shot(page, 'status-narrow', 2400);
  await page.getByRole('button', {name: 'Nodes', exact: true}).click();
  await page.locator('#nodes table').waitFor();
  await page.getByRole('button', {name: 'Sinks', exact: true}).click();
  await page.locator('#sinks table').waitFor();
  check(await page.locator('#sinks a.name').evaluateAll((all) => all.every((a) => a.getClientRects().length === 1)), 'the name of a sink is broken into lines');
  const menu = page.getByRole('button', {name: 'Menu'});
  await menu.click();
  await page.getByRole('navigation', {name: 'Sections'}).getByRole('link', {name: 'Losses'}).click();
  await page.locator('#losses ol').waitFor();
  check(await menu.getAttribute('aria-expanded') === 'false', 'the menu stays open');
  const wide = async () => page.evaluate(() => document.documentElement.scrollWidth);
  check(await wide() <= 390, `the page is ${await wide()} wide on a screen of 390`);
  await page.goto(`${running.sites[2]}#/events`);
  await page.getByRole('heading', {name: 'Live events'}).waitFor();
  check(await wide() <= 390, `the live view is ${await wide()} wide on a screen of 390`);
  // Colours are those of the system, or others.
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const dark = await background();
  await page.getByLabel('Colours').selectOption('light');
  check(await background() !== dark, 'the colours cannot be chosen');
  await page.reload();
  await page.getByRole('heading', {name: 'Live events'}).waitFor();
  check(await background() !== dark, 'the choice of colours is forgotten');
  await page.getByLabel('Colours').selectOption('');
  check(await background() === dark && await page.evaluate(() => localStorage.length) === 0, 'the colours of the system do not come back');
  await page.context().close();
}

async function accessControl() {
  const page = await open({}, /401|403/);
  const asked = [];
  let late = null; // a request with the wrong token, which is refused after the next one was entered
  const refusal = {code: 'STRM-ACCESS-UNAUTHENTICATED', message: 'no token', remedy: 'Send a token.'};
  await serveLarge(page);
  await page.route('**/v1/*', (r) => {
    const token = r.request().headers().authorization;
    asked.push(token);
    if (token === 'Bearer wrong' && r.request().url().endsWith('/v1/subscribers')) {
      late = r;
      return null;
    }
    if (token === 'Bearer right' || token === 'Bearer some' && !r.request().url().endsWith('/v1/status')) return r.fallback();
    return token === 'Bearer some' ? json(r, {code: 'STRM-ACCESS-FORBIDDEN', message: 'needs every namespace', remedy: ''}, 403) : json(r, refusal, 401);
  });
  await page.goto(running.sites[2]);
  await page.getByRole('dialog', {name: 'This node asks who you are'}).waitFor();
  check(await page.locator('#attention').getAttribute('data-level') === 'unknown', 'all is well before anything is known');
  check(await page.locator('#connection').innerText() === 'connecting', 'the page is live before it is let in');
  const enter = async (token) => {
    await page.getByRole('dialog', {name: 'This node asks who you are'}).waitFor();
    await page.getByLabel('Token', {exact: true}).fill(token);
    await page.getByRole('button', {name: 'Continue'}).click();
  };
  await enter('wrong');
  await page.getByText('The token was refused').waitFor();
  await enter('some');
  await named(page, 'attention', 'You may see a part only');
  if (late) {
    const refused = page.waitForResponse((r) => r.status() === 401);
    await json(late, refusal, 401);
    await refused;
  }
  await named(page, 'subscribers', '25 of 300 subscribers');
  check(!await page.locator('#nodes').isVisible(), 'an empty section is shown');
  await page.getByRole('button', {name: 'Forget token'}).click();
  await page.getByLabel('Keep it until this tab is closed').check();
  await enter('right');
  await named(page, 'overview', 'all 4,096');
  check(await page.evaluate(() => sessionStorage.length + localStorage.length + document.cookie.length) === 1, 'the token is kept elsewhere');
  check(!asked.some((t) => t && !/^Bearer (wrong|some|right)$/.test(t)), 'something else was sent');
  await page.reload();
  await named(page, 'overview', 'all 4,096');
  await page.context().close();
}

// press opens a question with a button, by keyboard alone, and answers it.
async function press(page, name) {
  const button = page.getByRole('button', {name, exact: true});
  await button.waitFor();
  await button.focus();
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog', {name: `${name}?`});
  await dialog.waitFor();
  await page.keyboard.press('Escape');
  await dialog.waitFor({state: 'hidden'});
  // A browser says that a dialog was closed when the next one may be open already.
  await button.evaluate((b) => {
    b.click();
    document.getElementById('confirm').close();
    b.click();
  });
  await dialog.waitFor();
  await page.keyboard.press('Tab');
  check(await page.evaluate(() => document.activeElement.id) === 'confirm-yes', 'the keyboard does not get to the answer');
  await page.keyboard.press('Enter');
  await dialog.waitFor({state: 'hidden'}).catch(async (e) => check(false, `${name}: ${await page.locator('#confirm-error').innerText()} (${e.message})`));
  await named(page, 'done', `${name}: accepted.`);
}

async function operations() {
  const page = await open();
  await page.goto(running.sites[0]);
  await named(page, 'overview', 'all 64');
  await page.waitForFunction(() => document.querySelectorAll('#nodes .badge[data-level=fine]').length === 3);
  await page.getByRole('progressbar', {name: 'How far in the oplog sink demo is'}).waitFor();

  // A subscriber begins with the documents, and an operator asks for them again.
  await page.evaluate(() => { window.reading = fetch('/v1/events?db=shop&coll=orders&subscriber=browser&start=snapshot').then((r) => r.text()); });
  await named(page, 'snapshots', 'browser');
  await named(page, 'snapshots', 'done');

  await press(page, 'Pause sink demo');
  await named(page, 'sinks', 'paused');
  await named(page, 'supervisor', 'Sweep ');
  await page.getByLabel('Node whose restarts are paused').selectOption('node-2');
  await press(page, 'Pause restarts of node-2');
  await named(page, 'supervisor', 'node-2 until');
  await press(page, 'Drain node-3');
  await named(page, 'nodes', 'drained');
  await page.waitForFunction(() => /^0$/.test(document.querySelectorAll('#nodes tbody tr')[2].children[2].textContent));
  await named(page, 'overview', 'all 64');
  await shot(page, 'status-operate', 3200);

  await press(page, 'Undo the drain of node-3');
  await press(page, 'Resume sink demo');
  await named(page, 'sinks', 'publishing');
  await press(page, 'Allow restarts of node-2');
  await page.locator('#supervisor .moves li').waitFor({state: 'detached'});
  const map = page.getByRole('slider', {name: 'Partitions'});
  await map.focus();
  await page.keyboard.press('End');
  const owner = /^Partition 63: (node-[123])/.exec(await map.getAttribute('aria-valuetext'))[1];
  const taker = owner === 'node-1' ? 'node-2' : 'node-1';
  await page.getByLabel('Node that takes the partition').selectOption(taker);
  await press(page, `Hand over partition 63 to ${taker}`);
  await page.waitForFunction((to) => document.querySelector('canvas[role=slider]').getAttribute('aria-valuetext').startsWith(`Partition 63: ${to}`), taker);
  const commands = await page.evaluate(async () => (await (await fetch('/v1/audit')).json()).records.map((r) => r.fields.command).filter(Boolean));
  for (const command of ['sinks pause', 'sinks resume', 'drain', 'handoff', 'supervisor pause-restart']) check(commands.includes(command), `the audit log lacks ${command}`);
  await page.context().close();
}

try {
  running = await demo('-nodes', '3', '-rate', '200', '-partitions', '64', '-sink', 'nats');
  await operations();
  const page = await open({}, /Failed to load resource/);
  await page.goto(running.sites[0]);
  await events.live(page, shot);
  await events.pages(page, running.sites[0], shot);
  await events.hostileNames(page, running.sites[0]);
  await events.operators(page, running.sites[0]);
  await page.context().close();
  await running.stop();
  await threeNodes();
  await largeCluster();
  await accessControl();
  check(complaints.length === 0, `the browser complains:\n${complaints.join('\n')}`);
  console.log('the status page does what it should');
} finally {
  await browser.close();
  await running?.stop();
}
