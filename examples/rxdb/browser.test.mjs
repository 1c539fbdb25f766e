// The same in Chromium, with IndexedDB and the network of the browser: npm run browser.

import assert from 'node:assert';
import { createServer } from 'node:http';
import { test } from 'node:test';
import { build } from 'esbuild';
import { launch } from '../../test/browser/page.mjs';
import { beginning, scenario } from './scenario.mjs';

test('an RxDB collection in Chromium equals the collection in MongoDB', { timeout: 900_000 }, async (t) => {
  const { outputFiles: [script] } = await build({
    entryPoints: [new URL('page.mjs', import.meta.url).pathname], bundle: true, format: 'esm', target: 'es2022', write: false,
    define: { 'process.env.NODE_ENV': '"production"', global: 'globalThis' },
  });
  const server = createServer((request, response) => {
    const [type, body] = request.url === '/page.js' ? ['text/javascript', script.contents]
      : ['text/html', '<!doctype html><title>orders</title><link rel="icon" href="data:,"><script type="module" src="/page.js"></script>'];
    response.writeHead(200, { 'Content-Type': `${type}; charset=utf-8` }).end(body);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const origin = `http://127.0.0.1:${server.address().port}`;
  const { browser, complaints, page: newPage } = await launch();
  t.after(() => browser.close());
  const page = await newPage({}, /net::ERR_|status of 410|RxDB Open Core RxStorage/); // the last is an advertisement
  let beginnings = 0;
  page.on('request', (request) => { if (request.method() === 'GET' && beginning.test(request.url())) beginnings++; });
  await page.goto(origin);

  await scenario(t, {
    origin,
    async open(url) {
      const start = async () => {
        await page.waitForFunction(() => globalThis.openOrders);
        await page.evaluate((at) => globalThis.openOrders(at), url);
      };
      await start();
      return {
        initial: () => page.evaluate(() => globalThis.orders.initial()),
        documents: () => page.evaluate(() => globalThis.orders.documents()),
        beginnings: () => beginnings,
        // The browser has no network, and the page is told so.
        async online(is) {
          await page.context().setOffline(!is);
          await page.evaluate((to) => globalThis.orders.online(to), is);
        },
        // The page is left as a user leaves it, without a word to the database; IndexedDB has what it had.
        async reopen(meanwhile) {
          await page.goto('about:blank');
          await meanwhile();
          await page.goto(origin);
          await start();
        },
        close() {}, // with the browser
      };
    },
  });
  assert.deepEqual(complaints, []);
});
