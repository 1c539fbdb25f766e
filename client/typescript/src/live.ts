import { parse, stringify } from "./extjson.js";
import { attempts, checkAddresses, open, refusal, StreamerError, subscribe, warn, type Change, type Options, type Progress } from "./subscribe.js";

/** LiveOptions say which documents are wanted, and where. */
export interface LiveOptions extends Omit<Options, "op" | "subscriber" | "start" | "onLoss" | "leaves" | "after"> {
  db: string;
  coll: string;
  /** Documents of a page, 1 to 5000. Defaults to 500. */
  limit?: number;
}

/** A Page is an answer of /v1/snapshot. */
interface Page<T> {
  documents: (T & { _id: unknown })[];
  keys?: string[];
  next?: string;
  position: string;
}

/** LiveCallbacks are called in the order of the changes. */
export interface LiveCallbacks<T> {
  added?: (document: T) => void;
  changed?: (before: T, after: T) => void;
  removed?: (document: T) => void;
  /** Called when all documents are there: after the beginning, and after a loss has been made up for. */
  whole?: () => void;
}

/** again are the codes after which the documents are read from the beginning. */
const again = new Set(["STRM-LOG-HISTORY-LOST", "STRM-LOG-AHEAD"]);

/** maxElements bounds an array that an update makes longer: MongoDB allows no document that has more. */
const maxElements = 1_500_000;

/**
 * A LiveQuery is the documents of a collection that match a filter, kept up to date: it reads them page by page, goes on with the changes, and reads
 * them again after a loss. Nodes keep nothing for it. Without mongodb.full_document, changes are applied to the documents as MongoDB describes them.
 */
export class LiveQuery<T extends object = Record<string, unknown>> {
  readonly #options: LiveOptions;
  readonly #on: LiveCallbacks<T>;
  readonly #documents = new Map<string, T>();
  readonly #progress: Progress = { last: "", failures: 0, retry: undefined, refused: false };
  #whole = false;

  constructor(options: LiveOptions, on: LiveCallbacks<T> = {}) {
    checkAddresses(options.addresses);
    this.#options = options;
    this.#on = on;
  }

  /** The documents by their keys (Change.key). They must not be modified. */
  get documents(): ReadonlyMap<string, T> {
    return this.#documents;
  }

  /** Whether these are all: while they are read, some may be missing. */
  get whole(): boolean {
    return this.#whole;
  }

  /** run keeps the documents up to date until the signal is aborted. It throws a StreamerError where another attempt does not help. */
  async run(): Promise<void> {
    for await (const address of attempts(this.#options, this.#progress)) {
      try {
        await this.#follow(await this.#load(address));
      } catch (reason) {
        if (this.#options.signal?.aborted) return;
        if (reason instanceof StreamerError && !again.has(reason.code)) throw reason;
        (this.#options.onReconnect ?? warn)(reason);
      }
      this.#whole = false;
    }
  }

  /** load reads all documents and returns the position of what the pages do not show. */
  async #load(address: string): Promise<string> {
    const seen = new Set<string>();
    for (let from = ""; ; ) {
      const page = await this.#page(address, from);
      for (const [i, document] of page.documents.entries()) {
        const key = page.keys?.[i] ?? stringify(document._id); // a node of an earlier version sends no keys
        seen.add(key);
        this.#set(key, document);
      }
      if (page.next) {
        from = page.next;
        continue;
      }
      for (const key of [...this.#documents.keys()]) if (!seen.has(key)) this.#remove(key);
      this.#progress.failures = 0;
      this.#whole = true;
      this.#on.whole?.();
      return page.position;
    }
  }

  async #page(address: string, from: string): Promise<Page<T>> {
    const { db, coll, filter, limit, token, signal } = this.#options;
    const target = new URL("/v1/snapshot", address);
    for (const [name, value] of Object.entries({ db, coll, filter, limit, from })) {
      if (value) target.searchParams.set(name, String(value));
    }
    const headers: Record<string, string> = {};
    if (token) headers["Authorization"] = `Bearer ${await token()}`;
    const response = await open(target.href, { headers, cache: "no-store", ...(signal && { signal }) }, this.#options);
    if (!response.ok) return refusal(response, this.#options, this.#progress);
    this.#progress.refused = false;
    return parse(await response.text()) as Page<T>;
  }

  /** follow applies changes, until one may have been missed. */
  async #follow(after: string): Promise<void> {
    const { limit: _, ...options } = this.#options;
    for await (const m of subscribe<T>({ ...options, after, leaves: true })) {
      if (m.kind === "loss" && this.#concerns(m.loss.namespaces ?? [])) return;
      if (m.kind === "change" && !this.#apply(m.change)) return;
    }
  }

  /** concerns reports whether one of the namespaces, db.coll or db.*, is that of the documents; none are all. */
  #concerns(namespaces: readonly string[]): boolean {
    const { db, coll } = this.#options;
    return namespaces.length === 0 || namespaces.includes(`${db}.*`) || namespaces.includes(`${db}.${coll}`);
  }

  /** apply applies a change. It returns false where the change does not say how the document is: the documents must be read again. */
  #apply(change: Change<T>): boolean {
    const { operationType, documentKey } = change;
    if (!documentKey) {
      if (["drop", "rename", "dropDatabase"].includes(operationType) && (change.ns?.coll ?? this.#options.coll) === this.#options.coll) {
        for (const key of [...this.#documents.keys()]) this.#remove(key);
      }
      return true;
    }
    const key = change.key ?? stringify(documentKey._id);
    if (operationType === "delete" || operationType === "left") {
      this.#remove(key);
      return true;
    }
    if (change.fullDocument) {
      this.#set(key, change.fullDocument);
      return true;
    }
    if (operationType !== "update" || !isClear(change)) return false;
    const before = this.#documents.get(key);
    if (before !== undefined) this.#set(key, applied(before, change) as T); // otherwise it is deleted by a later change, which a page has shown
    return true;
  }

  #set(key: string, document: T): void {
    const before = this.#documents.get(key);
    if (before !== undefined && stringify(before) === stringify(document)) return; // read again, or a change that a page shows
    this.#documents.set(key, document);
    if (before === undefined) this.#on.added?.(document);
    else this.#on.changed?.(before, document);
  }

  #remove(key: string): void {
    const document = this.#documents.get(key);
    this.#documents.delete(key);
    if (document !== undefined) this.#on.removed?.(document);
  }
}

/**
 * isClear reports whether an update says which fields it means. The name of a field may have dots: servers from 5.0 on can set such fields, and those
 * from 6.1 on say which ones they are. What is too large comes without a description.
 */
function isClear<T>({ updateDescription: u }: Change<T>): boolean {
  if (!u) return false;
  if (u.disambiguatedPaths || !u.truncatedArrays) return true;
  const paths = [...Object.keys(u.updatedFields), ...u.removedFields, ...u.truncatedArrays.map(({ field }) => field)];
  return !paths.some((path) => path.includes("."));
}

/** applied returns a document after an update. What is on the way to what changes is copied. */
function applied<T>(document: T, { updateDescription: u }: Change<T>): unknown {
  const path = (field: string) => u?.disambiguatedPaths?.[field]?.map(String) ?? field.split(".");
  let after: unknown = document;
  for (const { field, newSize } of u?.truncatedArrays ?? []) {
    after = altered(after, path(field), (v) => (Array.isArray(v) ? v.slice(0, newSize) : v));
  }
  for (const [field, value] of Object.entries(u?.updatedFields ?? {})) after = altered(after, path(field), () => value);
  for (const field of u?.removedFields ?? []) after = altered(after, path(field), undefined);
  return after;
}

/** altered returns a container with what is at the path changed, or removed. Missing documents on the way are made. */
function altered(container: unknown, path: readonly string[], change: ((v: unknown) => unknown) | undefined): unknown {
  const [step = "", ...rest] = path;
  if (Array.isArray(container)) {
    const i = Number(step);
    if (!Number.isInteger(i) || i < 0 || i >= maxElements) return container;
    const list = [...(container as unknown[])];
    while (list.length <= i) list.push(null);
    list[i] = rest.length > 0 ? altered(list[i], rest, change) : change ? change(list[i]) : null;
    return list;
  }
  const fields = new Map(isDocument(container) ? Object.entries(container) : []);
  if (rest.length > 0) fields.set(step, altered(fields.get(step), rest, change));
  else if (change) fields.set(step, change(fields.get(step)));
  else fields.delete(step);
  return Object.fromEntries(fields);
}

function isDocument(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;
}
