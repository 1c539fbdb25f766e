// Package change defines changes, their positions in the log, and their partitions.
//
// An [Event] is one change as MongoDB sent it: raw BSON with the offsets of the few fields that
// routing needs. [Parse] finds them in one pass that decodes and copies nothing. A [Position] is a
// place in the log: a whole resume token and its cluster time. A [Partition] is one of N shares of
// the documents; [Partitioner] assigns them.
//
// # Order
//
// Positions have a total order, the order of the tokens' _data, which is the order of the stream.
// Cluster times have not: all changes of a transaction have the same one, and on a sharded cluster
// changes of different documents may have the same token head.
//
// # Aliasing
//
// An Event and everything read from it alias the reply in which they arrived. Copy values that must
// outlive the reply ([Position.Clone]).
//
// The package imports no other package of this module, starts nothing and does no I/O.
//
// # Not obvious, and the tests that guard it
//
//   - Cluster time does not order events: all changes of a transaction share one, and on sharded
//     clusters even the head of the token is shared (change.TestPositionsOrderAsTheStreamDoes,
//     gateway.TestResumeAmongEventsOfEqualHeads)
//   - 1, 1L and 1.0 are one _id to MongoDB and one partition to us, for ever
//     (change.TestEqualIDsHaveOneCanonicalForm, change.TestPartitionsAreTheSameForEver,
//     extjson.TestKeysAgreeWithTheIndex)
//   - A partition function that changes would lose changes on their way between two partitions:
//     the origin names the format of _ids by which its cluster divides documents
//     (TestPartitionsAreThoseOfTheOrigin)
//   - MongoDB changes the version of its tokens when it is upgraded or downgraded, under open
//     streams. Versions order the events of one time differently: nothing is dropped by comparing
//     their tokens, but by the documents that they name (TestTokensOfTwoVersionsMeet,
//     oplog.TestOrdersOfTwoVersionsMeet, change.TestPositionsOfTwoVersions)
//   - A change is the same under every token that it has: a position outside a node names the
//     collection and the document, not the token (TestPositionsOutliveTheVersionOfTheirTokens,
//     stream.TestPositionsOfTwoVersionsAreOfTheSameChanges,
//     delivery.TestResumeInTheOrderOfAnotherVersion)
//   - A position outside a node is 34 bytes: the token's head and a hash of the collection and the
//     document. A session that resumes reads that time again and skips up to the event with the
//     hash; if the log continues without it, nothing was seen
//     (delivery.TestResumeAmongEventsOfEqualHeads, gateway.TestResumeAtAnEventThatIsNoLongerThere)
package change
