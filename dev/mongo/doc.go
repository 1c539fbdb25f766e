// Package devmongo is a MongoDB for development: an in-memory, single-node replica set that speaks
// MongoDB's wire protocol over TCP, so that the real driver talks to it. The demo, the benchmark
// and the integration tests of this project run on it where no MongoDB can be installed. It is
// never part of a service.
//
//	conn ─► wire ─► request ─► fail point ─► command ─┬─► store ─► oplog
//	                                                    └─► cursor ◄─ change stream ◄─ oplog
//
//	wire    messages, their validation, error codes      oplog   the log, change streams, resume tokens
//	doc     BSON: walking, building, printing, sort keys  store   collections, transactions, sessions, the snapshot
//	query   filters, projections, sorts, updates
//
// One request goes through three steps:
//
//	read ─► session, transaction number, time limit
//	run  ─► transaction or retryable write ─► read concern ─► the command ─► write concern
//	succeed or fail ─► ok, error labels, cluster time
//
// A statement that meets a transaction's lock waits (patiently) until that transaction is a minute
// old, and then aborts it. Waiting ends with the request's time limit and with the connection. A
// getMore that waits is woken by the next entry of the log, by killCursors and by the end of its
// connection.
//
// It behaves as the recordings of a real MongoDB 4.4 say, wherever a client of change streams
// depends on it: the conformance test replays all of them. Later releases have their own shapes
// instead: wallTime, tokens of version 2, expanded events, images, $changeStreamSplitLargeEvent.
// What else differs from server to server is a field of [Profile]: a test takes a release and a
// preset, and adjusts single behaviours. What devmongo does not support it refuses with MongoDB's
// own error codes (mostly CommandNotSupported, 115); it never ignores an option that would change
// an answer.
//
// # Life
//
// Listen opens the port and reads the snapshot, and starts nothing. Run serves until its context
// ends, closes all connections, writes the snapshot, and returns after its last goroutine has
// ended. Each connection has one goroutine that reads and one that answers; a malformed message
// ends its connection only.
//
// Writers hold the store's lock for one statement. A change stream takes a stretch of the log under
// a read lock and works on it outside: streams hold up neither each other nor writers. A getMore
// that waits is woken by the next entry, by killCursors, and by the end of its connection.
//
// # What tests can do to it
//
// configureFailPoint failCommand fails, delays or drops commands; TruncateOplog loses history;
// HoldMajority stops the majority point; DropConnections drops connections, SetClockOffset shifts
// the clock; Generate makes events faster than a client could; Stats, and serverStatus.devmongo,
// have counters.
//
// # What differs from a server
//
//   - There is no compression, no election, no replication. Users, their privileges and TLS exist
//     if a test configures them (SCRAM-SHA-1, SCRAM-SHA-256, MONGODB-X509); the test creates users,
//     not commands. A server may list other members; one that is started from the same snapshot has
//     the same log, and may be a secondary, which writes nothing to it.
//   - A router (preset sharded) has one server, which assigns each entry of its log to a shard by
//     the _id of the document. Shards share one clock, so that no two have entries of the same
//     time; all collections are sharded, and a drop is one event.
//   - Majority is immediate, unless it is held or the profile has a journal (preset lively). While
//     it is held, reads with majority concern wait for it; with a journal they see the committed
//     state. A lookup may see uncommitted changes.
//   - Transactions read the currently committed state, not a snapshot; they lock the documents that
//     they write.
//   - Aggregation is $match, $sort, $skip, $limit, $project, $count and the $group of
//     countDocuments; change streams take $match, $project and the split. $expr, $regex, arrays'
//     operators, collations, text and geo queries are refused. Only _id is indexed; unique indexes
//     and those that expire are refused.
//   - Collections are renamed within a database only. Capped ones evict nothing: they refuse a
//     document that does not fit. Views and time series are listed and dropped, and neither read
//     nor written. A collation is that of a collection (locale en, strength 2), of _ids of ASCII.
//   - The bytes of the oplog are those of devmongo's own form, about those of MongoDB's. Entries go
//     one by one as the log grows, transactions as a whole, and not in the stretches in which a
//     server truncates.
//   - findAndModify logs no images, createIndexes one entry, and a retried findAndModify is
//     answered with its first reply. Since 7.0 the oplog's deltas take names made of digits for
//     array indexes.
//   - dropDatabase drops collections in the order of their creation, a server in the order of their
//     UUIDs.
//   - A stream without a starting point that was opened with batch size 0 fails with 136 if the log
//     is cut before its first getMore; 4.4 passes over the loss in silence.
//   - The limit of a fragment of a split event may be off by some bytes.
//   - hello is known to release 4.4 as well, as it is to 4.4.2; appendOplogNote is not known to
//     routers of 4.4, as it is not before 4.4.17.
package devmongo
