import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Decimal128 as Decimal, Long, MongoClient } from "mongodb";
import { Decimal128, LiveQuery, StreamerError, stringify, subscribe } from "../dist/index.js";
import { node, parts } from "./node.mjs";

/** writer connects the real driver. */
async function writer(t, uri) {
  const client = await new MongoClient(uri).connect();
  t.after(() => client.close());
  return client.db("shop").collection("orders");
}

/** take reads changes until there are so many. */
async function take(messages, count) {
  const all = [];
  for await (const m of messages) {
    assert.equal(m.kind, "change", stringify(m));
    all.push(m);
    if (all.length === count) break;
  }
  return all;
}

const ids = (messages) => messages.map((m) => m.change.documentKey._id);
const range = (from, to) => Array.from({ length: to - from }, (_, i) => from + i);

test("subscribes with a filter, keeps every digit, and resumes", async (t) => {
  const p = await parts(t);
  const [{ address }, orders] = await Promise.all([node(t, "a", p), writer(t, p.mongodb)]);
  await orders.insertMany([
    { _id: 1, total: 5 },
    { _id: 2, total: 500, big: Long.fromString("9007199254740993"), exact: Decimal.fromString("0.10") },
    { _id: 3, total: 501 },
    { _id: 4, total: 502 },
  ]);
  const options = {
    addresses: [address], db: "shop", coll: "orders", op: ["insert"], filter: "doc.total >= 100", start: "earliest",
  };
  const first = await take(subscribe(options), 2);
  assert.deepEqual(ids(first), [2, 3]);
  assert.equal(first[0].change.fullDocument.big, 9007199254740993n);
  assert.deepEqual(first[0].change.fullDocument.exact, new Decimal128("0.10"));

  // Another process goes on after what this one has done.
  const rest = subscribe({ ...options, after: first[0].id });
  assert.deepEqual(ids(await take(rest, 2)), [3, 4]);

  // A durable name goes on at its checkpoint: at what was acknowledged, which is what was sent.
  await assert.rejects(take(subscribe({ ...options, filter: "doc.total >=" }), 1), (e) =>
    e instanceof StreamerError && e.code.startsWith("STRM-FILTER") && e.status === 400 && e.remedy !== "");
  await assert.rejects(take(subscribe({ ...options, after: "nonsense" }), 1), (e) => e.code === "STRM-SESSION-BAD-POSITION");
});

test("goes on at another node when its node is killed or stops", async (t) => {
  const p = await parts(t);
  const cluster = { STREAMER_CLUSTER_EXPECTED_NODES: "2", STREAMER_CLUSTER_LEASE_TTL: "5s" };
  const [a, b, orders] = await Promise.all([node(t, "a", p, cluster), node(t, "b", p, cluster), writer(t, p.mongodb)]);
  const reconnects = [];
  const messages = subscribe({
    addresses: [a.address, b.address], db: "shop", start: "earliest", onReconnect: (reason) => reconnects.push(reason),
  });
  const insert = (from, to) => orders.insertMany(range(from, to).map((_id) => ({ _id })));
  const read = async (count) => {
    const all = [];
    while (all.length < count) all.push((await messages.next()).value);
    return ids(all);
  };
  await insert(0, 50);
  assert.deepEqual(await read(50), range(0, 50));
  a.child.kill("SIGKILL");
  await a.ended;
  await insert(50, 100);
  assert.deepEqual(await read(50), range(50, 100), "after the kill");
  assert.ok(reconnects.length > 0);
  const again = await node(t, "a", p, { ...cluster, STREAMER_HTTP_LISTEN: new URL(a.address).host });
  await insert(100, 150);
  b.child.kill("SIGTERM");
  assert.deepEqual(await read(50), range(100, 150), "after the stop");
  await messages.return();
  assert.equal(again.child.exitCode, null);
});

test("asks for a token, and for another where one is refused", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "streamer-client-"));
  t.after(() => rm(dir, { recursive: true }));
  const identities = join(dir, "identities");
  const hash = createHash("sha256").update("second").digest("hex");
  await writeFile(identities, `token sha256:${hash} name=billing namespace=shop.*\n`, { mode: 0o600 });
  const p = await parts(t);
  const [{ address }, orders] = await Promise.all([node(t, "a", p, { STREAMER_ACCESS_IDENTITIES_FILE: identities }), writer(t, p.mongodb)]);
  await orders.insertOne({ _id: 1 });
  const tokens = ["first", "second"];
  const options = { addresses: [address], db: "shop", coll: "orders", start: "earliest" };
  assert.deepEqual(ids(await take(subscribe({ ...options, token: () => tokens.shift() ?? "second" }), 1)), [1]);
  assert.equal(tokens.length, 0);
  await assert.rejects(take(subscribe({ ...options, token: () => "wrong" }), 1), (e) => e.code === "STRM-ACCESS-UNAUTHENTICATED");
  await assert.rejects(take(subscribe(options), 1), (e) => e.status === 401);
  await assert.rejects(take(subscribe({ ...options, db: "hr", token: () => "second" }), 1), (e) => e.code === "STRM-ACCESS-FORBIDDEN");
});

// What a node does at its limits is told by a server that does nothing else.
test("waits as it is told, drops what is cut off, and notices silence", async (t) => {
  const seen = [];
  const server = createServer((request, response) => {
    seen.push(request.headers["last-event-id"]);
    const stream = () => response.writeHead(200, { "Content-Type": "text/event-stream" });
    if (seen.length === 1) {
      response.writeHead(503, { "Retry-After": "0", "Content-Type": "application/json" }).end('{"code":"STRM-NODE-STOPPING","message":"m","remedy":"r"}');
      return;
    }
    switch (request.headers["last-event-id"]) {
      case undefined:
        stream().end('retry: 1\n\nid: 1\ndata: {"documentKey":{"_id":1}}\n\nid: 2\ndata: {"documentKey":{"_id":2}}\n');
        return;
      case "1":
        stream().write('retry: 1\r\n\r\nid: 2\r\ndata: {"documentKey":{"_id":2}}\r\n\r\nid: 3\n: progress\n\n'); // and then silence
        return;
      default:
        stream().write('event: resync\nid: 4\ndata: {"notice":"resync","lost_to":{}}\n\n');
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const stop = new AbortController();
  const messages = subscribe({ addresses: [`http://127.0.0.1:${server.address().port}`], silence: 500, signal: stop.signal });
  const kinds = [];
  for await (const m of messages) {
    kinds.push(m.kind + m.id);
    if (kinds.length === 3) stop.abort(); // ends the loop
  }
  assert.deepEqual(kinds, ["change1", "change2", "loss4"]);
  assert.deepEqual([...new Set(seen)], [undefined, "1", "3"]); // a slow machine may repeat one
});

test("an invalid address throws, and the reason of a failed connection says why", async (t) => {
  for (const addresses of [[], ["nonsense"], ["127.0.0.1:8080"], ["http://127.0.0.1:1", "ftp://127.0.0.1"]]) {
    await assert.rejects(take(subscribe({ addresses }), 1), TypeError, String(addresses));
    assert.throws(() => new LiveQuery({ addresses, db: "shop", coll: "orders" }), TypeError, String(addresses));
  }
  const closed = createServer();
  await new Promise((listening) => closed.listen(0, "127.0.0.1", listening));
  const address = `http://127.0.0.1:${closed.address().port}`;
  await new Promise((done) => closed.close(done));
  for (const begin of [(o) => take(subscribe(o), 1), (o) => new LiveQuery({ ...o, db: "shop", coll: "orders" }).run()]) {
    const stop = new AbortController();
    let reason;
    await begin({ addresses: [address], signal: stop.signal, onReconnect: (r) => { reason = r; stop.abort(); } });
    assert.match(reason.message, new RegExp(`^${address}: connect ECONNREFUSED`));
  }
});
