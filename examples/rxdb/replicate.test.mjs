// RxDB's own protocol, in Node.

import { test } from 'node:test';
import { getRxStorageMemory } from 'rxdb/plugins/storage-memory';
import { open } from './orders.mjs';
import { beginning, scenario } from './scenario.mjs';

test('an RxDB collection equals the collection in MongoDB', { timeout: 900_000 }, async (t) => {
  const { mock } = t.mock.method(globalThis, 'fetch');
  await scenario(t, {
    open: async (url) => ({
      ...await open({ url, name: `orders${process.pid}`, storage: getRxStorageMemory() }),
      beginnings: () => mock.calls.filter((call) => beginning.test(call.arguments[0])).length,
    }),
  });
});
