// The page in Chromium, against a real node whose documents have _ids that are easily taken for each other: npm run browser.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { test } from "node:test";
import { Binary, Decimal128, Long, MaxKey, MinKey, MongoClient, ObjectId, Timestamp } from "mongodb";
import { launch } from "../../test/browser/page.mjs";
import { node, parts } from "../../client/typescript/test/node.mjs";

const mixed = () => [
  5, "5", new Date(5), new Timestamp(5n), 5.5, Decimal128.fromString("5.6"), null, new MinKey(), new MaxKey(), new Binary(Buffer.from("ab")), "ab",
  Long.fromString("9007199254740993"), Long.fromString("9007199254740994"), new ObjectId(), { a: 1 }, { a: "1" },
];

async function serve(t) {
  const files = { "/": ["index.html", "text/html"], "/dist/page.js": ["dist/page.js", "text/javascript"] };
  const server = createServer(async (request, response) => {
    const [file, type] = files[new URL(request.url, "http://x").pathname];
    response.writeHead(200, { "Content-Type": `${type}; charset=utf-8` }).end(await readFile(new URL(file, import.meta.url)));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${server.address().port}`;
}

test("the page shows what MongoDB has, also after its node was killed", async (t) => {
  const [p, origin, { browser, complaints, page: newPage }] = await Promise.all([parts(t), serve(t), launch()]);
  t.after(() => browser.close());
  const settings = { STREAMER_HTTP_CORS_ORIGINS: origin };
  const first = await node(t, "a", p, settings);
  const mongo = await new MongoClient(p.mongodb).connect();
  t.after(() => mongo.close());
  const orders = mongo.db("shop").collection("orders");
  const ids = mixed();
  await orders.insertMany(ids.map((_id, i) => ({ _id, customer: { name: `c${i}` }, total: i + 0.5, status: "paid" })));

  const page = await newPage({}, /net::ERR_/);
  await page.goto(`${origin}/?${new URLSearchParams({ address: first.address })}`);
  /** shows waits until the page shows exactly the orders of a status, by their totals. */
  const shows = async (status) => {
    const all = await orders.find({}, { projection: { _id: 0 } }).toArray();
    const rows = all.filter((o) => o.status === status).sort((a, b) => b.total - a.total).map((o) => `${o.customer.name} ${o.total.toFixed(2)}`);
    await page.waitForFunction(([want, count]) => {
      const shown = [...document.querySelectorAll("tr")].map((row) => [...row.cells].slice(1).map((cell) => cell.textContent).join(" "));
      return JSON.stringify(shown) === JSON.stringify(want) && document.querySelector("[role=status]").textContent === `${count} orders`;
    }, [rows, all.length]);
  };
  await shows("paid");
  for (let i = 0; i < ids.length; i += 3) await orders.updateOne({ _id: ids[i] }, { $set: { status: "packed", total: 100 + i } });
  await shows("paid");
  await page.getByRole("button", { name: "packed" }).click();
  await shows("packed");
  await orders.deleteOne({ _id: ids[0] });
  await orders.replaceOne({ _id: ids[1] }, { customer: { name: "another" }, total: 0.25, status: "packed" });
  await shows("packed");

  first.child.kill("SIGKILL");
  await first.ended;
  await orders.updateMany({ status: "packed" }, { $inc: { total: 1 } });
  await orders.deleteOne({ _id: ids[3] });
  await node(t, "a", p, { ...settings, STREAMER_HTTP_LISTEN: new URL(first.address).host });
  await shows("packed");
  if (process.env.PICTURE) await page.screenshot({ path: process.env.PICTURE });
  assert.deepEqual(complaints, []);
});
