// A picture of what the status page says in one case, for docs: node case.mjs URL FILE TEXT. The page must say the text, on one card, or that nothing
// needs attention on none. TestOneProblemOnEverySurface (test/process) makes the cases.

import {check, launch} from './page.mjs';

const [url, file, text] = process.argv.slice(2);
const {browser, page: open} = await launch();
const page = await open({viewport: {width: 900, height: 700}}, /./); // what the page asks of a node that is cut off may fail
await page.goto(url);
await page.locator('#attention', {hasText: text}).first().waitFor();
await page.waitForTimeout(1500); // it is drawn once a second
const cards = await page.locator('#attention .alert').count();
check(cards === (text === 'Nothing needs attention' ? 0 : 1), `${cards} cards: ${await page.locator('#attention').innerText()}`);
await page.screenshot({path: file, clip: {x: 0, y: 0, width: 900, height: 400}});
await browser.close();
