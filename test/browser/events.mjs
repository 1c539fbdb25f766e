// The live view of events, its filter tester, and the pages of subscribers and sinks, with a demo behind them.

import {check} from './page.mjs';
import {programs} from './programs.mjs';

const named = (page, id, text) => page.locator(`#${id}`, {hasText: text}).first().waitFor();
const rows = (page) => page.locator('ol.events > li');

// has waits for a text in the view.
const has = (page, text) => page.locator('.view', {hasText: text}).first().waitFor();

async function begin(page, choose = async () => {}) {
  await choose();
  await page.getByRole('button', {name: 'Start', exact: true}).click();
}

// filters shows a wrong filter's place, code and remedy, and a right one's events.
async function filters(page) {
  const filter = page.getByLabel('Filter, an expression in CEL');
  await begin(page, () => filter.fill('op == "insert" &&\n  key._id >'));
  const refused = page.locator('#filter-error');
  await refused.locator('code', {hasText: 'STRM-FILTER-INVALID'}).waitFor();
  check(/^ {2}key\._id >\n *\^$/.test(await refused.locator('pre').innerText()), `the place of the error is not shown: ${await refused.locator('pre').innerText()}`);
  check((await refused.locator('p').last().innerText()).length > 10, 'there is no remedy');
  check(await filter.getAttribute('aria-invalid') === 'true', 'a screen reader does not learn that the filter is wrong');
  await begin(page, () => filter.fill('op == "insert"'));
  await rows(page).nth(2).waitFor();
  await refused.waitFor({state: 'hidden'});
  check(await page.locator('ol.events summary .badge', {hasText: 'update'}).count() === 0, 'the filter does not select');
  await filter.fill('');
}

// tester tries filters on the events of the list: what the node says must agree with what is in them.
async function tester(page) {
  const filter = page.getByLabel('Filter, an expression in CEL');
  await begin(page, () => page.getByLabel('Begin at').selectOption('earliest'));
  await rows(page).nth(50).waitFor();
  await page.getByRole('button', {name: 'Pause', exact: true}).click();
  await filter.fill('op == "insert"');
  const test = page.getByRole('button', {name: 'Test the filter on these'});
  await test.click();
  await has(page, 'as the node evaluates it');
  const judged = await page.locator('ol.events > li').evaluateAll((all) => all.map((li) => [...li.querySelectorAll('summary .badge')].map((b) => b.textContent)));
  const known = judged.filter((b) => b.length === 2);
  check(known.length > 20, `only ${known.length} events are judged`);
  for (const [op, verdict] of known) check(verdict === (op === 'insert' ? 'matches' : 'does not match'), `${op}: ${verdict}`);
  check(new Set(known.map(([op]) => op)).size > 1, 'the events are all of one operation');
  await filter.fill('key._id.name == "x"'); // a field of a number
  await test.click();
  await page.locator('ol.events .badge', {hasText: 'fails: not delivered'}).first().waitFor();
  await has(page, 'fails: not delivered');
  await filter.fill('doc.');
  await test.click();
  await page.locator('#filter-error code', {hasText: 'STRM-FILTER-INVALID'}).waitFor();
  await filter.fill('');
}

// opened opens an event and returns it, once it is drawn.
async function opened(row) {
  await row.locator('summary').click();
  await row.locator('pre', {hasText: '}'}).waitFor();
  return JSON.parse(await row.locator('pre').innerText());
}

// resuming pauses the view, and finds after that exactly what comes after the last event.
async function resuming(page) {
  await begin(page, async () => {
    await page.getByLabel('Filter, an expression in CEL').fill('key._id % 20 == 0'); // few enough for the list to keep them all
    await page.getByLabel('Begin at').selectOption('now');
  });
  await rows(page).nth(3).waitFor();
  await page.getByRole('button', {name: 'Pause', exact: true}).click();
  await has(page, 'Paused after');
  const before = await rows(page).count();
  await page.getByRole('button', {name: 'Resume', exact: true}).click();
  await rows(page).nth(before + 3).waitFor();
  await page.getByRole('button', {name: 'Pause', exact: true}).click();
  const first = rows(page).last();
  await first.locator('summary').click();
  const id = await first.locator('.bar code').innerText();
  const after = page.locator('ol.events > li').nth(await rows(page).count() - 2);
  const second = await opened(after) && await after.locator('.bar code').innerText();
  await first.getByRole('button', {name: 'Start after it'}).click();
  await has(page, 'events/s');
  await rows(page).nth(1).waitFor();
  await page.getByRole('button', {name: 'Pause', exact: true}).click();
  const again = await opened(rows(page).last()) && await rows(page).last().locator('.bar code').innerText();
  check(again === second, 'what comes after an id is not the next event');
  return id;
}

// keys reads the _id of events whose documents and keys of shards have members of the same names, and texts that look so.
async function keys(page) {
  const decoy = '"documentKey":{"_id":"wrong"}';
  const cases = [
    ['{"documentKey":{"_id":1.50}}', '1.50'],
    [`{"fullDocument":{${decoy},"_id":7},"documentKey":{"_id":7}}`, '7'],
    [`{"fullDocument":{"a":[{${decoy}}]},"documentKey":{"_id":{"a":"}","b":[1,{"_id":2}]}}}`, '{"a":"}","b":[1,{"_id":2}]}'],
    ['{"documentKey":{"tenant":{"_id":"wrong"},"_id":{"$oid":"64"}}}', '{"$oid":"64"}'],
    ['{"documentKey":{"tenant":"\\"_id\\":1","_id":"a\\\\"},"ns":{}}', '"a\\\\"'],
    [`{"key":${JSON.stringify(decoy)},"documentKey":{"name":"documentKey","_id":3 }}`, '3'],
    [`{"fullDocument":{${decoy}},"operationType":"insert"}`, null],
    ['{"documentKey":null,"_id":4}', null],
    ['{"documentKey":{"tenant":{"_id":5}},"updateDescription":{"_id":6}}', null],
  ];
  const read = await page.evaluate(async (all) => {
    const {keyIn} = await import('/assets/views/events.js');
    return all.map(([json]) => keyIn(json));
  }, cases);
  cases.forEach(([json, want], n) => check(read[n] === want, `the _id of ${json} is ${want}, not ${read[n]}`));
}

// past asks the node for the changes of a document, and then twice at once: they are read and listed once, and can be read again.
async function past(page, row) {
  await row.getByRole('button', {name: 'History'}).click();
  await row.getByText(/^[1-9].* of this document in the log, read up to/).waitFor();
  check(await row.getByRole('list', {name: 'Changes of the document'}).locator('li').count() > 0, 'the history of a document is empty');
  let asked = 0;
  await page.route(/[/]v1[/]changes/, (r) => {
    asked++;
    return r.fulfill({json: {changes: [{time: new Date(), operation: 'insert', changed: []}], losses: [], read_to: new Date()}});
  });
  const list = row.getByRole('list', {name: 'Changes of the document'}).locator('li');
  const history = row.getByRole('button', {name: 'History'});
  for (const want of [1, 2]) {
    await history.evaluate((b) => { b.click(); b.click(); });
    await row.getByText('1 change of this document in the log').waitFor();
    check(asked === want && await list.count() === 1, `after ${want} readings, ${asked} requests and ${await list.count()} changes`);
    await history.and(page.locator(':enabled')).waitFor();
  }
  await page.unroute(/[/]v1[/]changes/);
}

// live is the test of the live view. It leaves a picture where told.
export async function live(page, shot) {
  await page.getByRole('link', {name: 'Live events'}).click();
  await page.getByRole('heading', {name: 'Live events'}).waitFor();
  await keys(page);
  await filters(page);
  await tester(page);
  const id = await resuming(page);
  await page.getByText('As a program').click();
  await page.getByLabel('Language of the program').selectOption('go');
  await page.locator('.program pre', {hasText: 'client.Subscription{ID: "events"'}).waitFor();
  await programs(page, id);
  const filter = page.getByLabel('Filter, an expression in CEL');
  await begin(page, async () => {
    await page.getByLabel('Begin at').selectOption('earliest');
    await page.getByText('As a program').click();
  });
  await rows(page).nth(40).waitFor();
  await page.getByRole('button', {name: 'Pause', exact: true}).click();
  await filter.fill('op == "update" && key._id < 100');
  await page.getByRole('button', {name: 'Test the filter on these'}).click();
  await has(page, 'as the node evaluates it');
  await rows(page).first().locator('summary').click();
  await shot(page, 'status-events', 1000);
  await past(page, rows(page).first());
}

// pages is the test of the pages of a subscriber that the demo has, and of its sink.
export async function pages(page, site, shot) {
  await page.goto(`${site}#window`);
  await page.getByRole('list', {name: 'Subscribers by their place in the oplog'}).getByRole('link').first().waitFor();
  await page.goto(`${site}#sinks`);
  await page.locator('#sinks a.name').first().click();
  await page.getByRole('heading', {name: 'Sink demo'}).waitFor();
  await has(page, 'publishing');
  await page.getByRole('table', {name: 'Partitions that are furthest behind'}).locator('tbody tr').nth(4).waitFor();
  await page.getByRole('img', {name: 'Acknowledged events per second'}).waitFor();
  await page.getByRole('link', {name: 'Its checkpoints, filter and rewind'}).click();
  await page.getByRole('heading', {name: 'Subscriber sink/demo'}).waitFor();
  await page.getByRole('table', {name: 'Subscriptions'}).locator('tbody tr').first().waitFor();
  await page.getByRole('table', {name: 'Checkpoints, newest first'}).locator('tbody tr').first().waitFor();
  await page.getByRole('img', {name: 'Lag'}).waitFor();
  await shot(page, 'status-subscriber', 1500);
  await page.getByRole('link', {name: 'Configuration'}).click();
  await has(page, 'mongodb.uri');
  await page.getByRole('searchbox', {name: 'Find keys'}).fill('lease_ttl');
  await has(page, 'cluster.lease_ttl');
}

// names that clients choose are shown as text, wherever they come, and change nothing around them.
export async function hostileNames(page, site) {
  const evil = '<img src=x onerror="window.broken=1"> \u2066abc';
  await page.goto(site);
  await page.evaluate(async (name) => {
    const response = await fetch(`/v1/events?${new URLSearchParams({subscriber: name, db: 'demo'})}`);
    window.status = response.status;
    window.hostile = response.body.getReader();
    window.body = await window.hostile.read().then(({value}) => new TextDecoder().decode(value));
  }, '<img src=x onerror="window.broken=1">');
  await named(page, 'subscribers', '<img src=x onerror="window.broken=1">');
  await page.locator('#subscribers a.name', {hasText: 'onerror'}).first().click();
  await page.getByRole('heading', {name: 'Subscriber <img'}).waitFor();
  await has(page, 'at node-1');
  await page.goto(`${site}#/subscribers/${encodeURIComponent(evil)}`);
  await page.getByRole('heading', {name: 'abc'}).waitFor();
  check(await page.evaluate(() => window.broken === undefined && document.querySelectorAll('main img').length === 0), 'a name became markup');
}

// operators rewind a subscriber after a preview, and delete it.
export async function operators(page, site) {
  await page.goto(site);
  const second = await page.evaluate(() => { // before the subscriber begins: a slow page keeps it there
    const d = new Date(Date.now() - 5000);
    return new Date(d - d.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
  });
  await page.evaluate(async () => {
    window.reading = (await fetch('/v1/events?subscriber=rewound&db=demo')).body.getReader();
    const {value} = await window.reading.read();
    await window.reading.read();
    return value.length;
  });
  await page.evaluate(() => { location.hash = '#/subscribers/rewound'; });
  await page.getByRole('heading', {name: 'Subscriber rewound'}).waitFor();
  await page.getByRole('table', {name: 'Checkpoints, newest first'}).locator('tbody tr').first().waitFor();
  await page.getByLabel('Back to').fill(second);
  await page.getByRole('button', {name: 'Preview'}).click();
  await has(page, 'will be delivered again');
  await page.getByRole('button', {name: 'Rewind', exact: true}).click();
  const dialog = page.getByRole('dialog', {name: 'Rewind rewound?'});
  await dialog.getByText('will be delivered again').waitFor();
  await dialog.getByRole('button', {name: 'Rewind'}).click();
  await named(page, 'done', 'Rewind rewound: accepted.');
  await page.getByRole('button', {name: 'Delete rewound'}).click();
  const sure = page.getByRole('dialog', {name: 'Delete rewound?'});
  await sure.getByText('connected').waitFor();
  await sure.getByRole('button', {name: 'Delete'}).click();
  await named(page, 'done', 'Delete rewound: accepted.');
}
