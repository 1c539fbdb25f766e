// Package row says what stores remember of gateways, beside the marks: one [Row] for each gateway tells how far it has acknowledged. It
// serves a gateway that has lost its own positions, and tells a node that starts whom to expect back.
//
// # What it promises
//
// A row never stands behind what its gateway has acknowledged: whatever is left out of it (tokens that are too large or too many) leaves
// a position before, so that a gateway that goes on from its row gets things twice and misses nothing. A row that is lost is told: its
// gateway is not recovered, and gets a resync notice.
//
// # What it costs
//
// Most partitions of a gateway stand at one position, up to which everything was looked at and nothing wanted or left to acknowledge. A
// row keeps that one, and beside it only the partitions that stand elsewhere. Its stored form has at most [MaxBytes] whatever it is given,
// of which etcd takes 1.5 MiB: names have at most [MaxName] bytes, which JSON may make six times as many; each of at most 16384
// partitions takes at most 40 bytes and, with a token, 14 more; and the tokens of a row have at most 256 KiB together, a third more in
// base64. The smallest token has 35 bytes, so there are at most 7489 in a row. There are at most [MaxRows] rows.
//
// # How long it is kept
//
// For [Life] after it was saved, by the store's own reckoning: MongoDB's clock stamps rows and is what they are compared with, etcd keeps
// them under leases. The clocks of nodes and gateways, which may differ by any time, decide nothing.
//
// # Who may write
//
// A row belongs to a gateway, not to the owner of a partition, so epochs do not fence it. What fences it is the gateway's process: a row
// of another process that started earlier is refused ([ErrSuperseded]), as the gateway's own connection is. Start times are all of the
// gateway's own clocks; of equal ones the last to save wins, because nobody can tell which is newer, and a row that nobody has renewed
// for [Life] refuses nothing. Among rows of one process the last wins, also one that stands before: the process has acknowledged all
// of them. Stores put a row in the place of the very one that was looked at, so that a write that arrives late undoes nothing.
//
// So a gateway whose clock stands behind that of its last process is not saved until the last row has run out. Should it lose its own
// positions meanwhile, it goes on from what its last process had acknowledged: it gets things again, and misses nothing that no process
// of it has acknowledged.
package row
