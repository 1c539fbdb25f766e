import { stringify } from "./extjson.js";
import { LiveQuery, type LiveOptions } from "./live.js";

/** A CollectionSync is what a store gives to what keeps a collection of it up to date, as TanStack DB does. */
export interface CollectionSync<T> {
  begin: () => void;
  write: (message: { type: "insert" | "update"; value: T } | { type: "delete"; key: string }) => void;
  commit: () => unknown;
  markReady: () => void;
  markError?: (error?: unknown) => void;
}

/** CollectionOptions are the options of a TanStack DB collection. */
export interface CollectionOptions<T extends object> {
  id: string;
  getKey: (document: T) => string;
  sync: { rowUpdateMode: "full"; sync: (store: CollectionSync<T>) => () => void };
}

/** StreamerCollectionOptions say which documents a collection has, and where they are. */
export interface StreamerCollectionOptions extends LiveOptions {
  /** Names the collection. Defaults to what it selects, and where. */
  id?: string;
  /** Called with a StreamerError after which no change comes any more. Defaults to console.error. */
  onError?: (error: unknown) => void;
}

/**
 * streamerCollectionOptions makes a TanStack DB collection of a live query: createCollection(streamerCollectionOptions<Order>({…})). The collection is
 * ready when all documents are there; it is read only. It begins with its first subscriber and ends when TanStack DB collects it, or with the signal.
 */
export function streamerCollectionOptions<T extends object>(options: StreamerCollectionOptions): CollectionOptions<T> {
  const { id, onError, ...live } = options;
  const keys = new WeakMap<T, string>(); // of documents as they came: JSON has no text for some _ids
  const idOf = (document: T) => stringify((document as { _id?: unknown })._id);
  return {
    id: id ?? stringify([live.addresses, live.db, live.coll, live.filter ?? ""]),
    getKey: (document) => keys.get(document) ?? idOf(document),
    sync: { rowUpdateMode: "full", sync: (store) => follow(live, store, keys, onError ?? ((error) => console.error(error))) },
  };
}

/** follow writes what a live query tells into a store until the function that it returns is called. What comes at once is one transaction. */
function follow<T extends object>(options: LiveOptions, store: CollectionSync<T>, keys: WeakMap<T, string>, onError: (error: unknown) => void): () => void {
  const ended = new AbortController();
  let open = false;
  const commit = () => {
    const begun = open;
    open = false; // also if the store throws, as it does when a subscriber of it fails
    if (begun && !ended.signal.aborted) store.commit();
  };
  const write = (message: Parameters<typeof store.write>[0]) => {
    if (ended.signal.aborted) return;
    if (!open) {
      open = true;
      store.begin();
      queueMicrotask(commit);
    }
    store.write(message);
  };
  const put = (type: "insert" | "update", value: T, key: string) => {
    keys.set(value, key);
    write({ type, value });
  };
  const stop = () => ended.abort();
  options.signal?.addEventListener("abort", stop, { once: true });
  if (options.signal?.aborted) stop();
  const query = new LiveQuery<T>({ ...options, signal: ended.signal }, {
    added: (document, key) => put("insert", document, key),
    changed: (_, document, key) => put("update", document, key),
    removed: (_, key) => write({ type: "delete", key }),
    whole: () => {
      commit();
      if (!ended.signal.aborted) store.markReady();
    },
  });
  query.run().catch((error: unknown) => {
    commit();
    store.markError?.(error);
    onError(error);
  });
  return () => {
    options.signal?.removeEventListener("abort", stop);
    stop();
  };
}
