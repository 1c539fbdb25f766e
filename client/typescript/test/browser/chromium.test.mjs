// The built client in a real Chromium, against real nodes: npm run browser.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { connect, createServer as listen } from "node:net";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { MongoClient } from "mongodb";
import { launch } from "../../../../test/browser/page.mjs";
import { stringify } from "../../dist/index.js";
import { node, parts } from "../node.mjs";

const lostConnection = /net::ERR_|status of 503/;
const range = (from, to) => Array.from({ length: to - from }, (_, i) => from + i);

/** serve serves the page and the client, and returns its origin. */
async function serve(t) {
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url, "http://x");
    const file = pathname === "/page.js" ? "page.js" : /^\/client\/\w+\.js$/.test(pathname) && `../../dist/${pathname.slice(8)}`;
    if (file) response.writeHead(200, { "Content-Type": "text/javascript" }).end(await readFile(new URL(file, import.meta.url)));
    else response.writeHead(200, { "Content-Type": "text/html" }).end('<!doctype html><link rel="icon" href="data:,"><script type="module" src="/page.js"></script>');
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${server.address().port}`;
}

/** wire passes connections on to a node until it is cut. */
async function wire(t, to) {
  const { hostname, port } = new URL(to);
  const sockets = new Set();
  const cut = () => sockets.forEach((s) => s.destroy());
  const server = listen((near) => {
    const far = connect(Number(port), hostname);
    for (const [from, other] of [[near, far], [far, near]]) {
      sockets.add(from);
      from.on("error", () => {}); // it closes then
      from.on("close", () => {
        sockets.delete(from);
        other.destroy();
      });
      from.pipe(other);
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    cut();
    server.close();
  });
  return { address: `http://127.0.0.1:${server.address().port}`, cut };
}

async function chromium(t) {
  const all = await launch();
  t.after(() => all.browser.close());
  return all;
}

async function writer(t, uri) {
  const client = await new MongoClient(uri).connect();
  t.after(() => client.close());
  return client.db("shop").collection("orders");
}

test("a page misses nothing while it is reloaded, offline and asleep, and while nodes stop", async (t) => {
  const [p, origin, { browser, complaints, page: newPage }] = await Promise.all([parts(t), serve(t), chromium(t)]);
  const settings = { STREAMER_CLUSTER_EXPECTED_NODES: "2", STREAMER_CLUSTER_LEASE_TTL: "5s", STREAMER_HTTP_CORS_ORIGINS: origin };
  const [a, b, orders] = await Promise.all([node(t, "a", p, settings), node(t, "b", p, settings), writer(t, p.mongodb)]);
  const wires = await Promise.all([a, b].map(({ address }) => wire(t, address)));
  const page = await newPage({}, lostConnection);
  const loaded = () => page.waitForFunction(() => window.state);
  const handled = (count) => page.waitForFunction((n) => window.state.kept().handled.length >= n, count);
  const event = (text) => page.waitForFunction((found) => window.state.events.some((e) => e.startsWith(found)), text);
  let inserted = 0;
  const insert = async (count) => {
    await orders.insertMany(range(inserted, inserted + count).map((_id) => ({ _id })));
    inserted += count;
  };
  const nothingMissed = async (after) => {
    await handled(inserted);
    assert.deepEqual(await page.evaluate(() => window.state.kept().handled), range(0, inserted), after);
    const want = (await orders.find().toArray()).map((d) => stringify(d));
    await page.waitForFunction((n) => window.state.documents().length === n, want.length);
    assert.deepEqual((await page.evaluate(() => window.state.documents())).sort(), want.sort(), after);
  };
  await page.goto(`${origin}/?${new URLSearchParams(wires.map((w) => ["address", w.address]))}`);
  await loaded();
  await insert(50);
  await nothingMissed("the beginning");

  // Reloaded while changes arrive, and closed while changes happen.
  for (let i = 0; i < 5; i++) {
    await insert(100);
    await handled(inserted - 90); // in the midst of them
    await page.reload();
    await loaded();
  }
  await nothingMissed("reloads");
  const url = page.url();
  await page.goto("about:blank");
  await insert(100);
  await page.goto(url);
  await loaded();
  await nothingMissed("a time without the page");

  await page.context().setOffline(true); // which leaves open connections as they are
  wires.forEach((w) => w.cut());
  await event("offline");
  await insert(100);
  await event("reconnect");
  assert.ok(await page.evaluate((n) => window.state.kept().handled.length < n, inserted), "the page is offline");
  await page.context().setOffline(false);
  await nothingMissed("a time offline");

  // A tab that sleeps while changes happen and a node dies: its processes get no time.
  const cdp = await browser.newBrowserCDPSession();
  const { processInfo } = await cdp.send("SystemInfo.getProcessInfo");
  const tabs = processInfo.filter(({ type }) => type === "renderer").map(({ id }) => id);
  assert.notEqual(tabs.length, 0);
  tabs.forEach((pid) => process.kill(pid, "SIGSTOP"));
  await insert(100);
  a.child.kill("SIGKILL");
  await a.ended;
  await insert(100);
  tabs.forEach((pid) => process.kill(pid, "SIGCONT"));
  await nothingMissed("a sleep");

  await node(t, "a", p, { ...settings, STREAMER_HTTP_LISTEN: new URL(a.address).host });
  await insert(100);
  b.child.kill("SIGTERM");
  await insert(100);
  await b.ended;
  await insert(100);
  await nothingMissed("the stop of a node");
  await orders.deleteMany({ _id: { $lt: 500 } });
  await page.waitForFunction((n) => window.state.documents().length === n, inserted - 500);
  assert.deepEqual(await page.evaluate(() => window.state.events.filter((e) => e.startsWith("failed"))), []);
  assert.deepEqual(complaints, []);
});

test("the example shows changes, and continues after a reload", async (t) => {
  const example = spawn(process.execPath, [fileURLToPath(new URL("../../../../examples/browser/serve.mjs", import.meta.url))], {
    env: { PORT: "0" }, stdio: ["ignore", "pipe", "inherit"],
  });
  t.after(() => example.kill());
  const [[origin], p, { complaints, page: newPage }] = await Promise.all([
    once(createInterface({ input: example.stdout }), "line"), parts(t), chromium(t),
  ]);
  const [{ address }, orders] = await Promise.all([node(t, "a", p, { STREAMER_HTTP_CORS_ORIGINS: origin }), writer(t, p.mongodb)]);
  const page = await newPage({}, /net::ERR_CONNECTION_REFUSED|status of 404/); // the address in the form, and the icon
  await page.route("http://127.0.0.1:8080/**", (route) => route.abort("connectionrefused")); // a node of somebody else may be there
  const subscribe = async () => {
    await page.getByLabel("Addresses of nodes, with commas").fill(address);
    await Promise.all([page.waitForResponse((r) => r.url().startsWith(address)), page.getByRole("button", { name: "Subscribe" }).click()]);
  };
  await page.goto(origin);
  await subscribe();
  await orders.insertOne({ _id: "first" });
  await page.locator("#changes li", { hasText: '"first"' }).waitFor();
  await page.goto("about:blank");
  await orders.insertOne({ _id: "second" });
  await page.goto(origin);
  await subscribe();
  await orders.insertOne({ _id: "third" });
  await page.locator("#changes li", { hasText: '"third"' }).waitFor();
  const shown = await page.locator("#changes li").allInnerTexts();
  assert.deepEqual(shown.map((text) => /"_id":"(\w+)"/.exec(text)?.[1]), ["third", "second"]);
  assert.deepEqual(complaints, []);
});
