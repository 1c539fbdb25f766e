// Replicates a collection of MongoDB into an RxDB collection: the documents from /v1/snapshot, then the changes from /v1/events.

import { Subject } from 'rxjs';
import { replicateRxCollection } from 'rxdb/plugins/replication';

// messages yields the messages of an event stream (WHATWG HTML, section 9.2) as { event, data, id }.
async function* messages(response) {
  const decoder = new TextDecoder();
  let text = '', id = '';
  let message = { event: '', data: '' };
  for await (const chunk of response.body) {
    text += decoder.decode(chunk, { stream: true });
    const lines = text.split('\n');
    text = lines.pop();
    for (const line of lines) {
      const [, field, value] = /^(\w*): ?(.*)$/.exec(line) ?? ['', '', ''];
      if (line === '') {
        yield { ...message, id };
        message = { event: '', data: '' };
      } else if (field === 'id') id = value;
      else if (field === 'event') message.event = value;
      else if (field === 'data') message.data += value;
    }
  }
}

// primaryKey makes RxDB's primary key, which must not contain quotes, from the key of a document: its _id as text, the same for all _ids that MongoDB
// considers equal, and different for others.
export const primaryKey = (key) => encodeURIComponent(key);

// maxPrimaryKey bounds its length.
export const maxPrimaryKey = 3 * 512;

// replicate replicates shop.orders, say, from a node into an RxDB collection. read turns a document of MongoDB into one of RxDB, of which it must not set
// the primary key. It returns RxDB's replication state, with online(boolean).
export function replicate({ url, db, coll, collection, read, retry = 200 }) {
  const stream$ = new Subject();
  const primary = collection.schema.primaryPath;
  const query = new URLSearchParams({ db, coll });
  let position;          // where the events go on, once the pages are complete
  let seen;              // keys of the pages, while the collection is read again
  let over = false;      // the collection must be read again
  let isOnline = true, stopped = false;
  let connection = new AbortController();

  const pause = () => new Promise((resume) => setTimeout(resume, retry));

  // pages is RxDB's pull handler: it returns at least as many documents as were asked for, unless there are no more.
  async function handler(checkpoint, batchSize) {
    if (over) {
      over = false;
      seen = new Set();
      checkpoint = undefined;
    }
    const documents = [];
    while (!checkpoint?.position && documents.length < batchSize) {
      if (!isOnline) throw new Error('offline');
      const page = new URLSearchParams(query);
      if (checkpoint?.from) page.set('from', checkpoint.from);
      const response = await fetch(`${url}/v1/snapshot?${page}`);
      if (response.status === 410) { // start over
        seen = new Set();
        checkpoint = undefined;
        continue;
      }
      if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
      const body = await response.json();
      for (const [i, d] of body.documents.entries()) {
        const id = primaryKey(body.keys[i]);
        seen?.add(id);
        documents.push({ ...read(d), [primary]: id, _deleted: false });
      }
      checkpoint = { from: body.next ?? '', position: body.next ? '' : body.position }; // RxDB merges checkpoints
    }
    if (checkpoint.position) {
      if (seen) { // what was not found again is gone
        for (const d of await collection.find().exec()) {
          if (!seen.has(d.primary)) documents.push({ ...d.toMutableJSON(), _deleted: true });
        }
        seen = undefined;
      }
      position = checkpoint.position;
    }
    return { documents, checkpoint };
  }

  // concerns reports whether one of a loss's namespaces, db.coll or db.*, is that of the collection; none are all.
  const concerns = (namespaces) => namespaces.length === 0 || namespaces.includes(`${db}.*`) || namespaces.includes(`${db}.${coll}`);

  // follow passes on the events after the pages, until the stream breaks or a loss is told.
  async function follow() {
    connection = new AbortController();
    const response = await fetch(`${url}/v1/events?${query}`, {
      headers: { Accept: 'text/event-stream', 'Last-Event-ID': position }, signal: connection.signal,
    });
    if (response.status === 409 || response.status === 410) { over = true; return; }
    if (!response.ok) throw new Error(`${response.status}`);
    for await (const { event, data, id } of messages(response)) {
      if (event === 'rewound' || event === 'resync' && concerns(JSON.parse(data).namespaces ?? [])) { over = true; return; }
      const documents = [];
      if (event === '' && data !== '') {
        const change = JSON.parse(data);
        if (change.documentKey === undefined) { over = true; return; } // the collection was dropped or renamed
        const id = primaryKey(change.key);
        if (change.operationType === 'delete') documents.push({ [primary]: id, _deleted: true });
        else if (change.fullDocument) documents.push({ ...read(change.fullDocument), [primary]: id, _deleted: false });
      }
      if (id) position = id;
      if (documents.length > 0) stream$.next({ documents, checkpoint: { from: '', position } });
    }
  }

  const state = replicateRxCollection({
    collection, replicationIdentifier: `${url}/${db}.${coll}`, deletedField: '_deleted', live: true, retryTime: retry,
    pull: { handler, stream$: stream$.asObservable(), batchSize: 500 },
  });

  (async () => {
    await state.awaitInitialReplication();
    while (!stopped) {
      if (isOnline && position && !over) await follow().catch(() => {});
      if (over && isOnline && !stopped) {
        position = undefined;
        stream$.next('RESYNC');
        while (!position && !stopped) await pause();
        await state.awaitInSync();
      }
      await pause();
    }
  })();

  state.online = (is) => { isOnline = is; if (!is) connection.abort(); };
  state.stop = async () => { stopped = true; connection.abort(); await state.cancel(); };
  return state;
}
