export { streamerCollectionOptions } from "./collection.js";
export type { CollectionOptions, CollectionSync, StreamerCollectionOptions } from "./collection.js";
export { parse, stringify, Decimal128, ObjectId } from "./extjson.js";
export { LiveQuery } from "./live.js";
export type { LiveCallbacks, LiveOptions } from "./live.js";
export { StreamerError, subscribe } from "./subscribe.js";
export type { Change, Loss, Message, Options, SnapshotMark } from "./subscribe.js";
