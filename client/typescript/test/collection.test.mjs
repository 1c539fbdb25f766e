import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";
import { streamerCollectionOptions } from "../dist/index.js";

const where = { addresses: ["http://127.0.0.1:8080"], db: "shop", coll: "orders" };

// A store calls its subscribers when it commits, and what one of them throws comes out of that.
test("a collection outlives a subscriber that throws", async (t) => {
  const server = createServer((request, response) => {
    if (request.url.startsWith("/v1/snapshot")) return response.end('{"documents":[{"_id":1}],"position":"p"}');
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    return response.write('id: 1\ndata: {"operationType":"insert","documentKey":{"_id":2},"fullDocument":{"_id":2}}\n\n');
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });

  const committed = [], reasons = [];
  let pending, fails = true;
  let done;
  const second = new Promise((resolve) => { done = resolve; });
  const store = {
    begin() {
      assert.equal(pending, undefined, "a transaction within another");
      pending = [];
    },
    write({ value }) {
      assert.ok(pending, "a write without a transaction");
      pending.push(value._id);
    },
    commit() {
      assert.ok(pending, "nothing to commit");
      committed.push(...pending);
      pending = undefined;
      if (fails) {
        fails = false;
        throw new Error("a subscriber fails");
      }
      if (committed.includes(2)) done();
    },
    markReady() {},
  };
  const { sync } = streamerCollectionOptions({
    ...where, addresses: [`http://127.0.0.1:${server.address().port}`], onReconnect: (reason) => reasons.push(reason.message),
  }).sync;
  const stop = sync(store);
  t.after(stop);
  await second;
  assert.deepEqual(committed, [1, 2]);
  assert.deepEqual(reasons, ["a subscriber fails"]);
});

test("collections of other nodes or documents have other ids", () => {
  const others = [where, { ...where, addresses: ["http://127.0.0.1:8081"] }, { ...where, db: "depot" }, { ...where, coll: "lines" }, { ...where, filter: "doc.total > 1" }];
  assert.equal(new Set(others.map((options) => streamerCollectionOptions(options).id)).size, others.length);
  assert.equal(streamerCollectionOptions({ ...where, id: "mine" }).id, "mine");
});
