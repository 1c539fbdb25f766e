// What happens to an RxDB collection, wherever it is: a node, a development MongoDB and etcd, changes, a while offline, a node that is killed, an
// oplog that wraps. After each the local collection must equal MongoDB's.

import assert from 'node:assert';
import { spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { Binary, BSONSymbol, Code, Decimal128, Long, MaxKey, MinKey, MongoClient, Timestamp } from 'mongodb';

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

// mixed are _ids that are easily taken for each other.
const mixed = () => [
  5, '5', new Date(5), new Timestamp(5n), 5.5, Decimal128.fromString('5.6'), null, new MinKey(), new MaxKey(), new Binary(Buffer.from('ab')),
  new Binary(Buffer.from('ab'), 4), new Code('ab'), 'ab', { a: 1 }, { a: '1' }, { a: 1, b: 2 }, { b: 2, a: 1 }, Long.fromString('9007199254740993'),
  Long.fromString('9007199254740994'), 'x'.repeat(2000), `${'x'.repeat(2000)}y`, 'ä"\\ %22', new BSONSymbol('symbol'),
];

// beginning matches the request for the first page of a collection.
export const beginning = /\/v1\/snapshot\?(?!.*\bfrom=)/;

// scenario runs a test. open opens the local database on a node: it returns the methods of orders.mjs, and beginnings, which counts how often the
// collection was read from its beginning. Where the database is kept, reopen ends it and opens it again. origin is that of the page, empty in Node.
export async function scenario(t, { open, origin = '' }) {
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
        STREAMER_HTTP_CORS_ORIGINS: origin, STREAMER_GRPC_LISTEN: '127.0.0.1:0', STREAMER_MONGODB_FULL_DOCUMENT: 'updateLookup',
        STREAMER_RESCAN_RATE: '100000', STREAMER_LOG_LEVEL: 'error',
      },
    });
    await until('the node is ready', () => fetch(`${url}/readyz`).then((r) => r.ok, () => false));
  };
  const kill = async () => {
    node.kill('SIGKILL');
    await new Promise((resolve) => node.once('exit', resolve));
  };
  t.after(() => node?.kill('SIGKILL'));
  await start();

  const mongo = await new MongoClient(uri).connect();
  t.after(() => mongo.close());
  const orders = mongo.db('shop').collection('orders');
  const all = [...mixed(), ...Array.from({ length: 10_000 }, (_, i) => `d${i}`)].map((_id, i) => ({ _id, name: `${i} ${_id}`, n: 0 }));
  for (let i = 0; i < all.length; i += 1000) await orders.insertMany(all.slice(i, i + 1000));
  let n = 0;
  const change = async (from, to) => {
    n++;
    const operations = [];
    for (let i = from; i < to; i++) {
      const { _id, name } = all[i];
      if (i % 10 === n % 10) operations.push({ deleteOne: { filter: { _id } } });
      else operations.push({ replaceOne: { filter: { _id }, replacement: { name, n }, upsert: true } });
    }
    await orders.bulkWrite(operations);
  };

  const local = await open(url);
  t.after(() => local.close());
  const differences = async () => {
    const want = new Map((await orders.find().toArray()).map((d) => [d.name, d.n]));
    const has = new Map(await local.documents());
    return [...want].filter(([id, n]) => has.get(id) !== n).length + [...has].filter(([id]) => !want.has(id)).length;
  };
  const equal = (what) => until(what, async () => await differences() === 0);

  await change(0, 500); // while the pages are read
  await local.initial();
  await equal('after the beginning');
  await change(0, mixed().length);
  await change(400, 900);
  await equal('after changes');

  await local.online(false);
  await change(1000, 1500);
  assert.notStrictEqual(await differences(), 0);
  await local.online(true);
  await equal('after a while offline');

  await kill();
  await change(2000, 2500);
  await start();
  await equal('after the node was killed');

  const beginnings = local.beginnings();
  if (local.reopen) {
    await change(2600, 2700);
    await local.reopen(() => change(2700, 2800));
    await equal('after the database was opened again');
    assert.strictEqual(local.beginnings(), beginnings, 'it continues where it was');
  }

  await local.online(false);
  await kill();
  await change(3000, 3500);
  const text = 'x'.repeat(4000);
  for (let i = 0; i < 20; i++) { // which moves the changes before it out of the log
    await mongo.db('shop').collection('noise').insertMany(Array.from({ length: 250 }, () => ({ text })));
  }
  await start();
  await local.online(true);
  await equal('after the log has wrapped');
  assert.ok(local.beginnings() > beginnings, 'it starts over');
}
