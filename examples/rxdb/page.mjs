// The local database in a page, kept in IndexedDB. browser.test.mjs bundles this.

import { getRxStorageDexie } from 'rxdb/plugins/storage-dexie';
import { open } from './orders.mjs';

globalThis.openOrders = async (url) => { globalThis.orders = await open({ url, name: 'orders', storage: getRxStorageDexie() }); };
