// Live queries beside everything that can be done to documents: after each pause a query has what find returns. The model is MongoDB itself.
// LIVE is how many steps there are with each kind of server, SEED repeats a run.
import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { test } from "node:test";
import { BSON, MongoClient } from "mongodb";
import { LiveQuery, parse, stringify } from "../dist/index.js";
import { node, parts } from "./node.mjs";

const steps = Number(process.env.LIVE ?? 300);
const seed = Number(process.env.SEED ?? randomInt(2 ** 31));

/** A Dice draws by a seed (mulberry32). */
class Dice {
  constructor(state) {
    this.state = state;
  }
  below(n) {
    this.state = (this.state + 0x6d2b79f5) | 0;
    let t = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % n;
  }
  one(of) {
    return of[this.below(of.length)];
  }
  list(make, most = 3) {
    return Array.from({ length: this.below(most + 1) }, make);
  }
}

const ids = [1, 2.5, "1", { b: 1, a: 2 }, null, true, new Date(1)];

/** A Writer does random things to a collection. What MongoDB refuses changes nothing. */
class Writer {
  constructor(dice, db) {
    this.dice = dice;
    this.db = db;
    this.orders = db.collection("orders");
  }

  value(depth) {
    switch (this.dice.below(depth > 0 ? 7 : 5)) {
      case 0: return this.dice.below(3);
      case 1: return this.dice.below(3) + 0.5;
      case 2: return this.dice.one(["", "x", "ü", "$x"]);
      case 3: return this.dice.one([null, true]);
      case 4: return this.dice.list(() => this.dice.below(4));
      case 5: return this.dice.list(() => this.value(depth - 1));
      default: return this.fields(depth - 1);
    }
  }

  name(dots) {
    return this.dice.one(dots ? ["a", "b", "0", "1", "01", "a.b", "b.0"] : ["a", "b", "0", "1", "01"]);
  }

  fields(depth) {
    return Object.fromEntries(this.dice.list(() => [this.name(true), this.value(depth)]));
  }

  path() {
    return [this.name(false), ...this.dice.list(() => this.dice.one(["a", "b", "0", "1", "3", "$[]"]), 2)].join(".");
  }

  /** operators returns an update by one operator or two. */
  operators() {
    const update = {};
    for (let more = 1 + this.dice.below(2); more > 0; more--) {
      const n = this.dice.below(4) - 1;
      const [op, argument] = this.dice.one([
        ["$set", this.value(1)], ["$set", this.value(2)], ["$unset", ""], ["$inc", n], ["$mul", n], ["$max", n], ["$rename", this.path()], ["$push", this.value(1)],
        ["$push", { $each: [n, 0], $slice: -2 }], ["$push", { $each: [n], $position: 0 }], ["$addToSet", n], ["$pop", 1], ["$pop", -1], ["$pull", n],
        ["$pull", { $gte: 1 }], ["$pullAll", [0, 2]],
      ]);
      update[op] = { [this.path()]: argument };
    }
    return update;
  }

  /** stages returns an update by a pipeline: a name with a dot can only be set so. */
  stages() {
    const value = { $literal: this.value(1) };
    const field = (input) => this.dice.one([{ $setField: { field: this.name(true), input, value } }, { $unsetField: { field: this.name(true), input } }]);
    return this.dice.one([
      [{ $set: { [this.path().replaceAll("$[]", "c")]: value } }], [{ $unset: this.path().replaceAll("$[]", "c") }], [{ $replaceWith: field("$$ROOT") }],
      [{ $set: { a: field("$a") } }], [{ $set: { b: { $slice: ["$b", 1] } } }],
    ]);
  }

  async step() {
    const _id = this.dice.one(ids);
    try {
      switch (this.dice.below(30)) {
        case 0: case 1: case 2: case 3: case 4: return await this.orders.insertOne({ _id, ...this.fields(2) });
        case 5: return await this.orders.replaceOne({ _id }, this.fields(2));
        case 6: return await this.orders.deleteOne({ _id });
        case 7: return await this.rare(_id);
        case 8: case 9: case 10: case 11: case 12: case 13: return await this.orders.updateOne({ _id }, this.stages());
        default: return await this.orders.updateOne({ _id }, this.operators());
      }
    } catch (reason) {
      if (reason?.name !== "MongoServerError" && reason?.name !== "MongoBulkWriteError") throw reason;
    }
  }

  async rare(_id) {
    switch (this.dice.below(6)) {
      case 0: return this.orders.drop();
      case 1:
        await this.db.collection("draft").insertOne({ _id, ...this.fields(1) });
        return this.db.renameCollection("draft", "orders", { dropTarget: true });
      default: return this.orders.updateOne({ _id }, this.operators(), { upsert: true });
    }
  }
}

/** sorted returns text that is the same for documents that differ in the order of fields only, which objects do not always keep. */
function sorted(value) {
  if (Array.isArray(value)) return `[${value.map(sorted).join()}]`;
  if (typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype) {
    return `{${Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${sorted(value[name])}`).join()}}`;
  }
  return stringify(value);
}

for (const [release, full] of [["4.4", "default"], ["6.0", "default"], ["7.0", "default"], ["8.0", "updateLookup"]]) {
  test(`a live query follows everything on ${release} with ${full}, seed ${seed}`, { timeout: Infinity }, async (t) => {
    const p = await parts(t, release);
    const client = await new MongoClient(p.mongodb).connect();
    t.after(() => client.close());
    const { address } = await node(t, "a", p, { STREAMER_MONGODB_FULL_DOCUMENT: full });
    const stop = new AbortController();
    t.after(() => stop.abort());
    let more = () => {};
    const told = () => more();
    const query = new LiveQuery({ addresses: [address], db: "shop", coll: "orders", limit: 2, signal: stop.signal }, { added: told, changed: told, removed: told, whole: told });
    const running = query.run();
    const ended = running.then(() => assert.fail("it has ended"));
    ended.catch(() => {});
    const dice = new Dice(seed);
    const writer = new Writer(dice, client.db("shop"));
    for (let step = 1; step <= steps; step++) {
      await writer.step();
      if (step < steps && dice.below(8) > 0) continue;
      const want = (await writer.orders.find().toArray()).map((d) => sorted(parse(BSON.EJSON.stringify(d)))).sort().join("\n");
      const has = () => [...query.documents.values()].map(sorted).sort().join("\n");
      const late = AbortSignal.timeout(120_000);
      const end = new Promise((_, reject) => late.addEventListener("abort", () => reject(new Error("it does not become what the collection is"))));
      end.catch(() => {});
      while (!query.whole || has() !== want) {
        try {
          await Promise.race([new Promise((resolve) => (more = resolve)), ended, end]);
        } catch (reason) {
          assert.equal(has(), want, `${reason} after step ${step}, whole: ${query.whole}`);
          throw reason;
        }
      }
    }
  });
}
