import { isTwofold, parse, stringify } from "./extjson.js";
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

/** LiveCallbacks are called in the order of the changes. key is that of the document (Change.key). */
export interface LiveCallbacks<T> {
  added?: (document: T, key: string) => void;
  changed?: (before: T, after: T, key: string) => void;
  removed?: (document: T, key: string) => void;
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
    if (before === undefined) return true; // it is deleted by a later change, which a page has shown
    this.#set(key, applied(before, change) as T);
    return true;
  }

  #set(key: string, document: T): void {
    const before = this.#documents.get(key);
    if (before !== undefined && stringify(before) === stringify(document)) return; // read again, or a change that a page shows
    this.#documents.set(key, document);
    if (before === undefined) this.#on.added?.(document, key);
    else this.#on.changed?.(before, document, key);
  }

  #remove(key: string): void {
    const document = this.#documents.get(key);
    this.#documents.delete(key);
    if (document !== undefined) this.#on.removed?.(document, key);
  }
}

/**
 * isClear reports whether an update says which fields it means. The name of a field may have dots: servers from 5.0 on can set such fields, and those
 * from 6.1 on say which ones they are, unless two have the same text. What is too large comes without a description.
 */
function isClear<T>({ updateDescription: u }: Change<T>): boolean {
  if (!u) return false;
  if (!u.truncatedArrays) return true;
  const paths = [...Object.keys(u.updatedFields), ...u.removedFields, ...u.truncatedArrays.map(({ field }) => field)];
  if (u.disambiguatedPaths) return new Set(paths).size === paths.length && !isTwofold(u.updatedFields);
  return !paths.some((path) => path.includes("."));
}

/** A Step is one step of a path: the name of a field, an index of an array, or text that is either. */
type Step = string | number;

/** removed is what an alteration returns for what is to go. */
const removed = Symbol("removed");

/** An Alteration returns what comes in the place of a value; undefined where it does not fit the value. */
type Alteration = (value: unknown) => unknown;

/**
 * applied returns a document after an update. The document may have had the update before, and later ones, because pages show later states than the
 * position at which the changes begin. So a part that does not fit is left out: a later update, which follows, has replaced or removed what it was
 * for, and all of them end at the present document. What is on the way to what changes is copied.
 */
function applied<T>(document: T, { updateDescription: u }: Change<T>): unknown {
  const said: Said = { paths: u?.disambiguatedPaths, makes: !u?.truncatedArrays };
  const alterations: [string, Alteration][] = [
    ...(u?.truncatedArrays ?? []).map(({ field, newSize }): [string, Alteration] => [
      field, (v) => (Array.isArray(v) && newSize <= v.length ? v.slice(0, newSize) : undefined),
    ]),
    ...Object.entries(u?.updatedFields ?? {}).map(([field, value]): [string, Alteration] => [field, () => value]),
    ...(u?.removedFields ?? []).map((field): [string, Alteration] => [field, (v) => (v === undefined ? undefined : removed)]),
  ];
  let after: unknown = document;
  for (const [field, alter] of alterations) {
    after = altered(after, steps(field, said), alter, said) ?? after;
  }
  return after;
}

/** Said is what the server says of the paths of an update. */
interface Said {
  /** The steps of names that are not clear; without it no step is known to be a name or an index. */
  paths: Record<string, Step[]> | undefined;
  /** A path may lead through documents that are not there: below 5.0. Later versions say a new document as a whole. */
  makes: boolean;
}

/** steps returns the steps of a field. */
function steps(field: string, { paths }: Said): Step[] {
  if (paths && Object.hasOwn(paths, field)) return paths[field]!; // a field may be called constructor
  return field.split(".").map((step, i) => (paths && i > 0 && isIndex(step) ? Number(step) : step));
}

function isIndex(step: Step): boolean {
  return /^(0|[1-9][0-9]*)$/.test(String(step));
}

/** altered returns a container after the alteration of what is at the path in it, undefined where that does not fit. */
function altered(container: unknown, path: readonly Step[], alter: Alteration, said: Said): unknown {
  const [step = "", ...rest] = path;
  const deeper: Alteration = (v) => (rest.length > 0 ? altered(v, rest, alter, said) : alter(v));
  if (Array.isArray(container)) {
    const i = Number(step);
    if (!isIndex(step) || (said.paths && typeof step === "string") || i >= maxElements) return undefined;
    const list = [...(container as unknown[])];
    const there = list[i]; // undefined after the end: it may be made
    while (list.length <= i) list.push(null);
    const v = deeper(there);
    list[i] = v === removed ? null : v; // an array keeps its length
    return v === undefined ? undefined : list;
  }
  if (container === undefined && said.makes) return altered({}, path, alter, said);
  if (!isDocument(container) || typeof step === "number") return undefined;
  const fields = new Map(Object.entries(container));
  const v = deeper(fields.get(step));
  if (v === undefined) return undefined;
  if (v === removed) fields.delete(step);
  else fields.set(step, v);
  return Object.fromEntries(fields);
}

function isDocument(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;
}
