import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";
import { Binary, BSONSymbol, Code, Decimal128, Long, MaxKey, MinKey, MongoClient, Timestamp } from "mongodb";
import { LiveQuery, StreamerError, stringify } from "../dist/index.js";
import { node, parts } from "./node.mjs";

/** watch runs a live query, and has until wait for what its callbacks have told. */
function watch(t, options) {
  const stop = new AbortController();
  const told = [];
  const shown = new Map(); // as the callbacks tell
  let more = () => {};
  const note = (what, document) => {
    told.push(`${what} ${stringify(document?._id ?? null)}`);
    more();
  };
  const query = new LiveQuery({ db: "shop", coll: "orders", signal: stop.signal, ...options }, {
    added(after) {
      assert.ok(!shown.has(after._id));
      shown.set(after._id, after);
      note("added", after);
    },
    changed(before, after) {
      assert.equal(shown.get(after._id), before);
      shown.set(after._id, after);
      note("changed", after);
    },
    removed(before) {
      assert.equal(shown.get(before._id), before);
      shown.delete(before._id);
      note("removed", before);
    },
    whole: () => note("whole"),
  });
  const running = query.run();
  running.catch(() => more());
  t.after(() => stop.abort());
  return {
    query, told, stop, running,
    async until(holds) {
      while (!holds()) await Promise.race([new Promise((resolve) => (more = resolve)), running.then(() => assert.fail("it has ended"))]);
      assert.deepEqual([...query.documents.values()], [...query.documents.keys()].map((key) => [...shown.values()].find((d) => stringify(d._id) === key)));
      assert.equal(query.documents.size, shown.size);
    },
  };
}

test("a live query is what the collection is", async (t) => {
  const p = await parts(t);
  const client = await new MongoClient(p.mongodb).connect();
  t.after(() => client.close());
  const orders = client.db("shop").collection("orders");
  const [{ address }, other] = await Promise.all([
    node(t, "a", p, { STREAMER_MONGODB_FULL_DOCUMENT: "updateLookup" }),
    node(t, "b", p, { STREAMER_CLUSTER_ID: "other" }), // describes changes only
    orders.insertMany(Array.from({ length: 30 }, (_, i) => ({ _id: i, total: i * 10, lines: [{ n: 1 }, { n: 2 }] }))),
  ]);
  const some = watch(t, { addresses: [address], filter: "doc.total >= 200", limit: 7 });
  const all = watch(t, { addresses: [other.address], limit: 7 });
  await Promise.all([some, all].map((w) => w.until(() => w.query.whole)));
  assert.equal(some.query.documents.size, 10);
  assert.equal(all.query.documents.size, 30);

  await orders.insertOne({ _id: "new", total: 1000, big: Long.fromString("9007199254740993") });
  await orders.updateOne({ _id: 5 }, { $set: { total: 300, "lines.1.n": 5, "a.b": 1 } }); // begins to match
  await orders.updateOne({ _id: 25 }, { $set: { total: 1 } }); // no longer matches
  await orders.updateOne({ _id: 26 }, { $unset: { lines: "" } });
  await orders.deleteOne({ _id: 27 });
  await orders.insertOne({ _id: "last", total: 1000 });
  const expected = (await orders.find().toArray()).map(({ big, ...d }) => (big ? { ...d, big: 9007199254740993n } : d));
  for (const [w, want] of [[some, expected.filter((d) => d.total >= 200)], [all, expected]]) {
    await w.until(() => w.told.includes('added "last"'));
    assert.deepEqual(new Map(w.query.documents), new Map(want.map((d) => [stringify(d._id), d])));
  }
  assert.deepEqual(some.told.slice(11), ['added "new"', "added 5", "removed 25", "changed 26", "removed 27", 'added "last"']);
  assert.deepEqual(all.told.slice(31), ['added "new"', "changed 5", "changed 25", "changed 26", "removed 27", 'added "last"']);

  await orders.drop();
  await Promise.all([some, all].map((w) => w.until(() => w.query.documents.size === 0)));
  some.stop.abort();
  await some.running;
  const wrong = new LiveQuery({ addresses: [address], db: "shop", coll: "orders", filter: "doc.total >=" });
  await assert.rejects(wrong.run(), (e) => e instanceof StreamerError && e.code.startsWith("STRM-FILTER"));
});

// _ids that are easily taken for each other are documents of their own; what MongoDB considers equal is one.
test("documents of mixed _ids have keys of their own", async (t) => {
  const ids = [
    5, "5", new Date(5), new Timestamp(5n), 0.1, Decimal128.fromString("0.1"), null, new MinKey(), new MaxKey(), new Binary(Buffer.from("ab")),
    new Binary(Buffer.from("ab"), 4), new Code("ab"), "ab", { a: 1 }, { a: "1" }, { a: 1, b: 2 }, { b: 2, a: 1 }, Long.fromString("9007199254740993"),
    Long.fromString("9007199254740994"), "x".repeat(2000), "x".repeat(2000) + "y",
  ];
  const again = new Map([
    [0, Decimal128.fromString("5.00")], [1, new BSONSymbol("5")], [13, { a: Decimal128.fromString("1.0") }], [17, Decimal128.fromString("9007199254740993")],
  ]);
  const p = await parts(t);
  const client = await new MongoClient(p.mongodb).connect();
  t.after(() => client.close());
  const orders = client.db("shop").collection("orders");
  const { address } = await node(t, "a", p, {});
  await orders.insertMany(ids.slice(0, 10).map((_id, i) => ({ _id, n: i })));
  const stop = new AbortController();
  let more = () => {};
  const told = () => more();
  const query = new LiveQuery({ addresses: [address], db: "shop", coll: "orders", limit: 3, signal: stop.signal }, { added: told, changed: told, removed: told, whole: told });
  const running = query.run();
  t.after(() => stop.abort());
  const equals = async () => {
    const want = (await orders.find().toArray()).map((d) => d.n).sort((a, b) => a - b);
    for (;;) {
      const has = [...query.documents.values()].map((d) => d.n).sort((a, b) => a - b);
      if (query.whole && String(has) === String(want)) return;
      await Promise.race([new Promise((resolve) => (more = resolve)), running.then(() => assert.fail("it has ended"))]);
    }
  };
  await equals();
  await orders.insertMany(ids.slice(10).map((_id, i) => ({ _id, n: 10 + i })));
  await equals();
  for (const [i, _id] of again) {
    await assert.rejects(orders.insertOne({ _id }), { code: 11000 });
    await orders.updateOne({ _id }, { $set: { n: 100 + i } });
    if (i % 2) await orders.deleteOne({ _id: ids[i] });
  }
  await equals();
  for (const [i, _id] of again) {
    await orders.deleteOne({ _id: ids[i] });
    await orders.insertOne({ _id, n: 200 + i });
  }
  await equals();
  assert.equal(query.documents.size, ids.length);
});

// What happens when the log has wrapped is told by a server that does nothing else.
test("a live query reads the documents again after a loss, and over the next address", async (t) => {
  const asked = [];
  const answers = [
    (r) => r.writeHead(503).end("{}"),
    (r) => r.end('{"documents":[{"_id":1,"v":1},{"_id":2,"v":1}],"next":"n","position":"p"}'),
    (r) => r.writeHead(410).end('{"code":"STRM-LOG-HISTORY-LOST","message":"m","remedy":"r"}'),
    (r) => r.end('{"documents":[{"_id":1,"v":1},{"_id":3,"v":[1,2,3],"a.b":1}],"position":"p1"}'),
    (r) => r.writeHead(200, { "Content-Type": "text/event-stream" }).end(
      'id: 1\ndata: {"operationType":"update","documentKey":{"_id":3},"updateDescription":{"updatedFields":{"a.b":2,"v.0":7},"removedFields":[],' +
      '"truncatedArrays":[{"field":"v","newSize":2}],"disambiguatedPaths":{"a.b":["a.b"]}}}\n\n' +
      'id: 2\ndata: {"operationType":"update","documentKey":{"_id":9},"updateDescription":{"updatedFields":{"v":1},"removedFields":[]}}\n\n' +
      'id: 3\nevent: resync\ndata: {"notice":"resync","lost_to":{},"namespaces":["shop.other","other.*"]}\n\n' + // another collection's
      'id: 4\ndata: {"operationType":"insert","documentKey":{"_id":4},"fullDocument":{"_id":4,"v":1}}\n\n' +
      'id: 5\nevent: resync\ndata: {"notice":"resync","lost_to":{},"namespaces":["other.*","shop.orders"]}\n\n'),
    (r) => r.end('{"documents":[{"_id":1,"v":2}],"position":"p2"}'),
    (r) => r.writeHead(200, { "Content-Type": "text/event-stream" }).write('id: 4\ndata: {"operationType":"left","documentKey":{"_id":1}}\n\n'),
  ];
  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url, "http://x");
    asked.push([pathname, searchParams.get("from"), request.headers["last-event-id"], searchParams.get("leaves")]);
    answers[asked.length - 1](response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const reasons = [];
  const w = watch(t, { addresses: [`http://127.0.0.1:${server.address().port}`], onReconnect: (reason) => reasons.push(reason) });
  await w.until(() => w.told.at(-1) === "removed 1");
  assert.deepEqual(w.told, [
    "added 1", "added 2", "added 3", "removed 2", "whole null", "changed 3", "added 4", "changed 1", "removed 3", "removed 4", "whole null", "removed 1",
  ]);
  assert.deepEqual(asked, [
    ["/v1/snapshot", null, undefined, null], ["/v1/snapshot", null, undefined, null], ["/v1/snapshot", "n", undefined, null],
    ["/v1/snapshot", null, undefined, null], ["/v1/events", null, "p1", "true"], ["/v1/snapshot", null, undefined, null], ["/v1/events", null, "p2", "true"],
  ]);
  assert.equal(reasons.length, 2);
});

// An update that can mean several fields, or says nothing, makes the query read its documents again.
test("a live query reads the documents again after an unclear update", async (t) => {
  const unclear = [
    '"updateDescription":{"updatedFields":{"a.b":2},"removedFields":[],"truncatedArrays":[]}',
    '"updateDescription":{"updatedFields":{},"removedFields":["a.b"],"truncatedArrays":[]}',
    '"updateDescription":{"updatedFields":{"a.b":2},"removedFields":["a.b"],"truncatedArrays":[],"disambiguatedPaths":{"a.b":["a.b"]}}',
    '"updateDescription":{"updatedFields":{"a.b":2,"a.b":3},"removedFields":[],"truncatedArrays":[],"disambiguatedPaths":{"a.b":["a.b"]}}',
    '"incomplete":true',
  ];
  let pages = 0;
  const server = createServer((request, response) => {
    if (request.url.startsWith("/v1/snapshot")) return response.end(`{"documents":[{"_id":1,"a":{"b":${++pages}}}],"position":"p"}`);
    const update = unclear[pages - 1] ?? '"updateDescription":{"updatedFields":{"a.b":"last"},"removedFields":[],"truncatedArrays":[],"disambiguatedPaths":{}}';
    return response.writeHead(200, { "Content-Type": "text/event-stream" }).write(`id: 1\ndata: {"operationType":"update","documentKey":{"_id":1},${update}}\n\n`);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const w = watch(t, { addresses: [`http://127.0.0.1:${server.address().port}`] });
  await w.until(() => [...w.query.documents.values()][0]?.a.b === "last");
  assert.equal(pages, unclear.length + 1);
  assert.ok(w.query.whole);
  assert.equal(w.told.filter((told) => told === "whole null").length, pages);
});

// Pages show later states than the position at which the changes begin, so that these come again for documents that no longer fit them.
test("a live query reads its documents once, although changes come again", async (t) => {
  const update = (described) => `id: 1\ndata: {"operationType":"update","documentKey":{"_id":2},"updateDescription":{"updatedFields":{},"removedFields":[],"truncatedArrays":[],"disambiguatedPaths":{},${described}}}\n\n`;
  let pages = 0;
  const server = createServer((request, response) => {
    if (request.url.startsWith("/v1/snapshot")) {
      return response.end(pages++ % 2 ? '{"documents":[{"_id":2,"list":[1],"n":1}],"position":"q"}' : '{"documents":[{"_id":1}],"next":"n","position":"p"}');
    }
    return response.writeHead(200, { "Content-Type": "text/event-stream" }).write([
      update('"updatedFields":{"a.b":1}'), update('"removedFields":["a.c"]'), update('"removedFields":["a"]'), update('"truncatedArrays":[{"field":"list","newSize":2}]'),
      update('"truncatedArrays":[{"field":"list","newSize":1}]'), update('"updatedFields":{"n":2}'),
    ].join(""));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const w = watch(t, { addresses: [`http://127.0.0.1:${server.address().port}`] });
  await w.until(() => w.query.documents.get("2")?.n === 2);
  assert.deepEqual(w.query.documents.get("2"), { _id: 2, list: [1], n: 2 });
  assert.equal(pages, 2);
});

// The names of fields are those of documents, not of JavaScript's objects.
test("a live query applies updates of fields that are called as members of objects are", async (t) => {
  const names = ["constructor", "toString", "hasOwnProperty", "__proto__"];
  let pages = 0;
  const server = createServer((request, response) => {
    if (request.url.startsWith("/v1/snapshot")) {
      pages++;
      return response.end('{"documents":[{"_id":1,"n":0}],"position":"p"}');
    }
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    for (const name of [...names, "n"]) {
      response.write(`data: {"operationType":"update","documentKey":{"_id":1},"updateDescription":{"updatedFields":{"${name}":7},"removedFields":[],"truncatedArrays":[],"disambiguatedPaths":{}}}\n\n`);
    }
    return undefined;
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const reasons = [];
  const w = watch(t, { addresses: [`http://127.0.0.1:${server.address().port}`], onReconnect: (reason) => reasons.push(reason) });
  await w.until(() => w.query.documents.get("1")?.n === 7 || reasons.length > 0);
  assert.deepEqual(reasons, []);
  assert.deepEqual(Object.entries(w.query.documents.get("1")).sort(), [["_id", 1], ["n", 7], ...names.map((name) => [name, 7])].sort());
  assert.equal(pages, 1);
});
