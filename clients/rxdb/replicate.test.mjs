// RxDB's own protocol against a node, a development MongoDB and etcd: after everything that happens the local collection equals MongoDB's.

import assert from 'node:assert';
import { spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { test } from 'node:test';
import { MongoClient } from 'mongodb';
import { createRxDatabase } from 'rxdb';
import { getRxStorageMemory } from 'rxdb/plugins/storage-memory';
import { replicate } from './replicate.mjs';

const bin = new URL('../../bin/', import.meta.url).pathname;

const freePort = () => new Promise((resolve) => {
  const server = createServer().listen(0, '127.0.0.1', () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});

// until waits for a condition; a test that waits for ever is ended by its timeout.
async function until(what, is) {
  for (let waited = 0; ; waited += 50) {
    if (await is()) return;
    if (waited % 20000 === 19950) console.error(`waiting: ${what}`);
    await new Promise((resume) => setTimeout(resume, 50));
  }
}

// lines waits for a process to print what matches.
const lines = (child, pattern) => new Promise((resolve, reject) => {
  let text = '';
  child.stdout.on('data', (chunk) => {
    text += chunk;
    const found = pattern.exec(text);
    if (found) resolve(found);
  });
  child.once('exit', (code) => reject(new Error(`it ended with ${code}: ${text}`)));
});

test('an RxDB collection equals the collection in MongoDB', { timeout: 300_000 }, async (t) => {
  const parts = spawn(`${bin}demo`, ['parts', '-mongodb', '', '-etcd', '', '-oplog', '8'], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => parts.kill('SIGTERM'));
  const [, uri, etcd] = await lines(parts, /MongoDB\s+(\S+)\s+etcd\s+(\S+)/);
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  let node;
  const start = async () => {
    node = spawn(`${bin}streamer`, ['run'], {
      stdio: ['ignore', 'ignore', 'inherit'],
      env: {
        PATH: process.env.PATH, STREAMER_MONGODB_URI: uri, STREAMER_ETCD_ENDPOINTS: etcd, STREAMER_HTTP_LISTEN: `127.0.0.1:${port}`,
        STREAMER_GRPC_LISTEN: '127.0.0.1:0', STREAMER_MONGODB_FULL_DOCUMENT: 'updateLookup', STREAMER_RESCAN_RATE: '100000', STREAMER_LOG_LEVEL: 'error',
      },
    });
    await until('the node is ready', () => fetch(`${url}/readyz`).then((r) => r.ok, () => false));
  };
  t.after(() => node?.kill('SIGKILL'));
  await start();

  const mongo = await new MongoClient(uri).connect();
  t.after(() => mongo.close());
  const orders = mongo.db('shop').collection('orders');
  const all = Array.from({ length: 10_000 }, (_, i) => ({ _id: `d${i}`, n: 0 }));
  for (let i = 0; i < all.length; i += 1000) await orders.insertMany(all.slice(i, i + 1000));
  let n = 0;
  const change = async (from, to) => {
    n++;
    const operations = [];
    for (let i = from; i < to; i++) {
      if (i % 10 === n % 10) operations.push({ deleteOne: { filter: { _id: `d${i}` } } });
      else operations.push({ updateOne: { filter: { _id: `d${i}` }, update: { $set: { n } }, upsert: true } });
    }
    await orders.bulkWrite(operations);
  };

  const database = await createRxDatabase({ name: `orders${process.pid}`, storage: getRxStorageMemory(), multiInstance: false });
  t.after(() => database.close());
  const { orders: collection } = await database.addCollections({
    orders: {
      schema: {
        version: 0, primaryKey: 'id', type: 'object', required: ['id'],
        properties: { id: { type: 'string', maxLength: 100 }, n: { type: 'number' } },
      },
    },
  });
  const state = replicate({ url, db: 'shop', coll: 'orders', collection, read: ({ _id, n }) => ({ id: _id, n }) });
  t.after(() => state.stop());
  const differences = async () => {
    const want = new Map((await orders.find().toArray()).map((d) => [d._id, d.n]));
    const has = new Map((await collection.find().exec()).map((d) => [d.id, d.n]));
    return [...want].filter(([id, n]) => has.get(id) !== n).length + [...has].filter(([id]) => !want.has(id)).length;
  };
  const equal = (what) => until(what, async () => await differences() === 0);

  await change(0, 500); // while the pages are read
  await state.awaitInitialReplication();
  await equal('after the beginning');
  await change(400, 900);
  await equal('after changes');

  state.online(false);
  await change(1000, 1500);
  assert.notStrictEqual(await differences(), 0);
  state.online(true);
  await equal('after a while offline');

  node.kill('SIGKILL');
  await new Promise((resolve) => node.once('exit', resolve));
  await change(2000, 2500);
  await start();
  await equal('after the node was killed');

  state.online(false);
  node.kill('SIGKILL');
  await new Promise((resolve) => node.once('exit', resolve));
  await change(3000, 3500);
  const text = 'x'.repeat(4000);
  for (let i = 0; i < 20; i++) { // which moves the changes before it out of the log
    await mongo.db('shop').collection('noise').insertMany(Array.from({ length: 250 }, () => ({ text })));
  }
  await start();
  state.online(true);
  await equal('after the log has wrapped');
});
