export { parse, stringify, Decimal128, ObjectId } from "./extjson.js";
export { StreamerError, subscribe } from "./subscribe.js";
export type { Change, Loss, Message, Options, SnapshotMark } from "./subscribe.js";
