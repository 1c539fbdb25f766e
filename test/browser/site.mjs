// The documentation as a site (bin/site), opened from its folder: search, names of rows, copy buttons, the theme, the menu of phones.

import {pathToFileURL} from 'node:url';
import {check, launch} from './page.mjs';

const site = pathToFileURL(`${process.argv[2] ?? 'bin/site'}/`).href;
const {browser, complaints, page: open} = await launch();
try {
  const page = await open({permissions: ['clipboard-read', 'clipboard-write']});
  await page.goto(`${site}index.html`);
  await page.locator('h1', {hasText: 'Streamer'}).waitFor();
  check(await page.locator('main img').first().evaluate((img) => img.complete && img.naturalWidth > 0), 'the drawing does not load');

  await page.keyboard.press('/');
  await page.keyboard.type('mongodb.full_document');
  await page.locator('#results a', {hasText: 'Configuration: mongodb.full_document'}).first().waitFor();
  await page.keyboard.press('Enter');
  await page.waitForURL(/configuration\.html#mongodb\.full_document$/);
  const row = page.locator('tr[id="mongodb.full_document"]');
  check(await row.evaluate((tr) => tr.getBoundingClientRect().top >= 40 && tr.getBoundingClientRect().top < innerHeight), 'the row of the key is not in view');
  check(await row.locator('a.anchor').getAttribute('href') === '#mongodb.full_document', 'the row has no link to itself');

  await page.getByLabel('Search the documentation').fill('qzxv');
  await page.locator('#results', {hasText: 'Nothing was found.'}).waitFor();

  await page.goto(`${site}docs/guides.html`);
  const block = page.locator('pre', {hasText: 'package main'});
  check(await block.locator('.kd, .kn').count() > 0, 'code has no colours');
  await block.hover();
  await block.getByRole('button', {name: 'Copy'}).click();
  await block.getByRole('button', {name: 'Copied'}).waitFor();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  check(copied.startsWith('package main\n') && copied.endsWith('}\n'), `copied: ${copied}`);
  check(await page.locator('.contents a', {hasText: 'TypeScript'}).isVisible(), 'a wide page has no contents');

  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await page.locator('#theme').click(); // light, as the system wishes
  check(await background() === light, 'light is not light');
  await page.locator('#theme').click();
  check(await background() !== light, 'dark is not dark');
  await page.locator('.around a[rel="next"]').click();
  await page.locator('h1', {hasText: 'How-tos'}).waitFor();
  check(await background() !== light, 'the next page has forgotten the theme');

  const phone = await open({viewport: {width: 390, height: 800}});
  await phone.goto(`${site}docs/guides.html`);
  const link = phone.locator('.pages a', {hasText: 'Operations'});
  check(!await link.isVisible(), 'the menu is not folded on a phone');
  check(await phone.locator('h1').evaluate((h) => h.getBoundingClientRect().top) < 200, 'the text begins too far below');
  await phone.locator('label[for="menu"]').click();
  check(await link.isVisible(), 'the menu does not open');
  check(await phone.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'the page scrolls sideways');
  check(complaints.length === 0, complaints.join('\n'));
} finally {
  await browser.close();
}
console.log('site: ok');
