import { parse } from "./extjson.js";
import { events, type ServerEvent } from "./sse.js";

/** Options say what to subscribe to, and where. */
export interface Options {
  /** The nodes' addresses, such as https://streamer-0.example.com:8080. Any node serves everything; the next is tried after a failure. */
  addresses: readonly string[];
  /** A token for each connection (docs/access.md). Called again when a token was refused, so that it can be renewed. */
  token?: () => string | Promise<string>;
  /** A database, and a collection of it. Empty: everything that the identity may read. */
  db?: string;
  coll?: string;
  /** Kinds of change: insert, update, replace, delete, … Empty: all. */
  op?: readonly string[];
  /** A CEL expression (docs/filters.md). */
  filter?: string;
  /** A durable name: the nodes keep a checkpoint for it, and a later call continues there. */
  subscriber?: string;
  /** Where to begin if neither after nor a checkpoint says: now, earliest, snapshot, or a time. Defaults to now. */
  start?: "now" | "earliest" | "snapshot" | Date;
  /** After a loss: only be notified, or get the documents again. Defaults to notify. */
  onLoss?: "notify" | "snapshot";
  /** Whether a change "left" comes when a document stops matching. */
  leaves?: boolean;
  /** Continues after the message with this id. */
  after?: string;
  /** Ends the subscription. */
  signal?: AbortSignal;
  /** Reconnects after so many milliseconds without a byte; nodes send one every 15 s. Defaults to 45,000. */
  silence?: number;
  /** Called before each wait for another attempt, with the reason. Defaults to console.warn. */
  onReconnect?: (reason: unknown) => void;
  /** Defaults to the global fetch. */
  fetch?: typeof fetch;
}

/** A Change is one change of a document, as MongoDB reports it. */
export interface Change<T = Record<string, unknown>> {
  /** null for events of a whole collection. */
  partition: number | null;
  /** The document: its _id as text, the same for all _ids that MongoDB considers equal. Events of a whole collection have none. */
  key?: string;
  operationType: string;
  ns?: { db: string; coll?: string };
  documentKey?: { _id: unknown };
  fullDocument?: T | null;
  fullDocumentBeforeChange?: T | null;
  updateDescription?: {
    updatedFields: Partial<T>;
    removedFields: string[];
    truncatedArrays?: { field: string; newSize: number }[];
    /** The steps of fields whose names have dots or digits. */
    disambiguatedPaths?: Record<string, (string | number)[]>;
  };
  clusterTime?: unknown;
  [field: string]: unknown;
}

/** A Loss bounds what may have been missed. It comes in its place among the changes. */
export interface Loss {
  notice: string;
  reason: string;
  namespaces?: string[];
  partitions?: number[];
  lost_from: unknown;
  lost_to: unknown;
  found: string;
  advice: string;
  generation?: number;
}

/** A SnapshotMark says how far a snapshot is. */
export interface SnapshotMark {
  subscription: string;
  state: string;
  reason: string;
  read: number;
  estimated: number;
  /** The namespaces (db.coll) whose documents come; none: all that the subscription selects. */
  namespaces?: string[];
}

/** A Message is what a subscription yields. To continue after it, even in another process, pass its id as Options.after. */
export type Message<T = Record<string, unknown>> =
  | { kind: "change"; id: string; change: Change<T> }
  | { kind: "loss"; id: string; loss: Loss }
  | { kind: "snapshot"; id: string; snapshot: SnapshotMark }
  | { kind: "notice"; id: string; notice: string; data: unknown };

/** A StreamerError is a refusal that another attempt does not change. */
export class StreamerError extends Error {
  override name = "StreamerError";
  constructor(
    /** One of docs/codes.md. */
    readonly code: string,
    message: string,
    readonly remedy: string,
    readonly status?: number,
  ) {
    super(code ? `${code}: ${message}` : message);
  }
}

/** fatal are the codes with which a node ends a stream that another attempt would not continue. */
const fatal = new Set([
  "STRM-SESSION-REPLACED",
  "STRM-SESSION-FILTER-COSTLY",
  "STRM-LOG-HISTORY-LOST",
  "STRM-LOG-AHEAD",
  "STRM-ACCESS-FORBIDDEN",
]);

/**
 * subscribe yields changes, losses and marks of snapshots in order, and reconnects to the next address when a node stops or fails. It asks for the
 * next message when the loop asks for it: what is in work when the loop ends was not finished, and what was yielded before is not sent again.
 * It ends when the signal is aborted, and throws a StreamerError where another attempt does not help.
 */
export async function* subscribe<T = Record<string, unknown>>(options: Options): AsyncGenerator<Message<T>, void, void> {
  checkAddresses(options.addresses);
  const progress: Progress = { last: options.after ?? "", failures: 0, retry: undefined, refused: false };
  for await (const address of attempts(options, progress)) {
    try {
      yield* connection<T>(address, options, progress);
    } catch (reason) {
      if (options.signal?.aborted) return;
      if (reason instanceof StreamerError) throw reason;
      (options.onReconnect ?? warn)(reason);
    }
  }
}

/** checkAddresses throws where an address is none: another attempt would not help. */
export function checkAddresses(addresses: readonly string[]): void {
  if (addresses.length === 0) throw new TypeError("no address");
  for (const address of addresses) {
    if (!URL.canParse(address) || !/^https?:$/.test(new URL(address).protocol)) {
      throw new TypeError(`invalid address ${JSON.stringify(address)}: write it as http://127.0.0.1:8080, or https://…`);
    }
  }
}

/** warn says why a connection is opened again where nobody else listens. */
export function warn(reason: unknown): void {
  console.warn("streamer: reconnecting:", reason instanceof Error ? reason.message : reason);
}

/** open is fetch whose error says why: Node's says only "fetch failed". */
export async function open(target: string, init: RequestInit, options: Pick<Options, "fetch">): Promise<Response> {
  try {
    return await (options.fetch ?? fetch)(target, init);
  } catch (error) {
    const cause = (error as { cause?: { message?: string; code?: string } }).cause;
    const why = cause?.message || cause?.code;
    if (!why || init.signal?.aborted) throw error;
    const hint = cause.code?.startsWith("HPE_") ? " (is this the address of a node's HTTP server, port 8080?)" : "";
    throw new Error(`${new URL(target).origin}: ${why}${hint}`, { cause: error });
  }
}

/** attempts yields the address of each attempt, until the signal is aborted. */
export async function* attempts(options: Pick<Options, "addresses" | "signal">, progress: Progress): AsyncGenerator<string, void, void> {
  for (let turn = 0; !options.signal?.aborted; turn++) {
    yield options.addresses[turn % options.addresses.length]!;
    if (options.signal?.aborted) return;
    progress.failures++; // or a planned end: the next address is tried at once in either case
    // The other addresses are tried at once; then there is a pause that grows.
    const round = Math.floor(progress.failures / options.addresses.length);
    if (progress.failures % options.addresses.length === 0) {
      await sleep(progress.retry ?? Math.min(30_000, 250 * 2 ** Math.min(round, 7)) * (0.5 + Math.random() / 2), options.signal);
      progress.retry = undefined;
    }
  }
}

export interface Progress {
  last: string;
  failures: number;
  retry: number | undefined; // what a node has asked for, in milliseconds
  refused: boolean; // the last token was refused
}

/** connection yields what one connection brings. It returns when the node ends the stream as planned, and throws otherwise. */
async function* connection<T>(address: string, options: Options, progress: Progress): AsyncGenerator<Message<T>, void, void> {
  const abort = new AbortController();
  const stop = () => abort.abort(options.signal?.reason);
  options.signal?.addEventListener("abort", stop, { once: true });
  let timer: ReturnType<typeof setTimeout> | undefined;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => abort.abort(new Error("nothing arrived for too long")), options.silence ?? 45_000);
  };
  try {
    alive();
    const headers: Record<string, string> = { Accept: "*/*" }; // who asks for an event stream is told of refusals in one
    if (progress.last) headers["Last-Event-ID"] = progress.last;
    if (options.token) headers["Authorization"] = `Bearer ${await options.token()}`;
    const response = await open(url(address, options), { headers, signal: abort.signal, cache: "no-store" }, options);
    if (!response.ok || !response.body || !response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
      await refusal(response, options, progress);
      return;
    }
    progress.refused = false;
    for await (const event of events(response.body, alive)) {
      const message = read<T>(event, options, progress);
      if (!message) continue;
      clearTimeout(timer); // a loop may take its time
      yield message;
      // The loop has asked for more: it is done with this one.
      if (message.id) progress.last = message.id;
      alive();
    }
  } finally {
    clearTimeout(timer);
    options.signal?.removeEventListener("abort", stop);
    abort.abort();
  }
}

function url(address: string, options: Options): string {
  const target = new URL("/v1/events", address);
  const set = (name: string, value: string | undefined) => {
    if (value) target.searchParams.set(name, value);
  };
  set("db", options.db);
  set("coll", options.coll);
  set("op", options.op?.join(","));
  set("filter", options.filter);
  set("subscriber", options.subscriber);
  set("start", options.start instanceof Date ? options.start.toISOString() : options.start);
  set("on_loss", options.onLoss);
  set("leaves", options.leaves ? "true" : undefined);
  return target.href;
}

/** read turns an event into a message, undefined where there is none. */
function read<T>(event: ServerEvent, options: Options, progress: Progress): Message<T> | undefined {
  if (event.retry !== undefined) progress.retry = event.retry;
  if (event.data === undefined) {
    if (event.id) progress.last = event.id; // progress without a message
    if (event.id) progress.failures = 0;
    return undefined;
  }
  if (event.type !== "error" && event.type !== "unavailable") progress.failures = 0;
  const id = event.id ?? "";
  switch (event.type) {
    case "message":
      return { kind: "change", id, change: parse(event.data) as Change<T> };
    case "snapshot":
      return { kind: "snapshot", id, snapshot: JSON.parse(event.data) as SnapshotMark };
    case "error":
    case "unavailable": {
      const { code = "", message = "", remedy = "" } = JSON.parse(event.data) as { code?: string; message?: string; remedy?: string };
      const error = new StreamerError(code, message, remedy);
      if (fatal.has(code) || (code === "STRM-ACCESS-UNAUTHENTICATED" && !options.token)) throw error;
      throw new Error(error.message); // another attempt may help
    }
    default: {
      const data = JSON.parse(event.data) as Record<string, unknown>;
      return "lost_to" in data ? { kind: "loss", id, loss: data as unknown as Loss } : { kind: "notice", id, notice: event.type, data };
    }
  }
}

/** refusal throws: a StreamerError where another attempt does not help. */
export async function refusal(response: Response, options: Pick<Options, "token">, progress: Progress): Promise<never> {
  const text = await response.text().catch(() => "");
  let told: { code?: string; message?: string; remedy?: string } = {};
  try {
    told = JSON.parse(text) as typeof told;
  } catch {
    // not of a node: of a proxy, perhaps
  }
  const error = new StreamerError(told.code ?? "", told.message ?? `HTTP status ${response.status}`, told.remedy ?? "", response.status);
  const after = response.headers.get("Retry-After");
  if (after && /^\d+$/.test(after)) progress.retry = Number(after) * 1000;
  if (response.status === 401 && options.token && !progress.refused) {
    progress.refused = true; // once more with another token
    throw new Error(error.message);
  }
  if (response.status >= 500 || response.status === 429 || response.status === 408 || response.ok) throw new Error(error.message);
  throw error;
}

/** sleep ends early when the signal is aborted, or the browser is online again. */
function sleep(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const target = globalThis as unknown as Partial<EventTarget>;
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      target.removeEventListener?.("online", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    signal?.addEventListener("abort", done, { once: true });
    target.addEventListener?.("online", done, { once: true });
  });
}
