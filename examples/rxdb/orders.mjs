// The local database of the tests: shop.orders, replicated from a node. In Node and in browsers.

import { createRxDatabase } from 'rxdb';
import { maxPrimaryKey, replicate } from './replicate.mjs';

export async function open({ url, name, storage }) {
  const database = await createRxDatabase({ name, storage, multiInstance: false });
  const { orders: collection } = await database.addCollections({
    orders: {
      schema: {
        version: 0, primaryKey: 'id', type: 'object', required: ['id'],
        properties: { id: { type: 'string', maxLength: maxPrimaryKey }, name: { type: 'string' }, n: { type: 'number' } },
      },
    },
  });
  const state = replicate({ url, db: 'shop', coll: 'orders', collection, read: ({ name, n }) => ({ name, n }) });
  return {
    initial: () => state.awaitInitialReplication(),
    online: (is) => state.online(is),
    documents: async () => (await collection.find().exec()).map((d) => [d.name, d.n]),
    async close() {
      await state.stop();
      await database.close();
    },
  };
}
