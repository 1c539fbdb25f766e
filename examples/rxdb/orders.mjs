// The local database of the tests: shop.orders, replicated from a node. In Node and in browsers.

import { createRxDatabase } from 'rxdb';
import { replicate } from './replicate.mjs';

export async function open({ url, name, storage }) {
  const database = await createRxDatabase({ name, storage, multiInstance: false });
  const { orders: collection } = await database.addCollections({
    orders: {
      schema: {
        version: 0, primaryKey: 'id', type: 'object', required: ['id'],
        properties: { id: { type: 'string', maxLength: 100 }, n: { type: 'number' } },
      },
    },
  });
  const state = replicate({ url, db: 'shop', coll: 'orders', collection, read: ({ _id, n }) => ({ id: _id, n }) });
  return {
    initial: () => state.awaitInitialReplication(),
    online: (is) => state.online(is),
    documents: async () => (await collection.find().exec()).map((d) => [d.id, d.n]),
    async close() {
      await state.stop();
      await database.close();
    },
  };
}
