// Command judge runs nodes as processes and compares their subscribers' copies with MongoDB's
// documents.
//
//	judge -for 60s               one run with a fresh seed, which it prints
//	judge -seed 7 -for 60s -v    that seed again
//	judge -wide                  and operators rewind subscribers, other processes take names,
//	                             event streams are compressed, a retained log precedes the oplog
//	judge -harsh                 and nodes freeze for longer than their leases, single checkpoints
//	                             of sinks are lost or damaged, and resume tokens are refused
//
// A run is rounds. In a round a writer changes documents in every way while subscribers of all
// kinds join, break off and resume, operators ask for snapshots, and nodes are killed, stopped,
// drained and lose partitions. Then everything rests, and every copy must become what find returns.
// The seed decides options, rules, joins, writes and disturbances; how they meet is chance, so
// repeat a seed. The exit status is 1 if a copy was wrong, and 2 if the run itself failed.
//
// A difference of a copy has one of these classes:
//
//	missing      it lacks a document
//	stale        it has an older state of a document
//	differs      it has another state of a document, of the same number
//	superfluous  a document should have left it
//	resurrected  it has a document that does not exist
//	order        an older state of a document came after a newer one
//	not done     it does not say that it is complete
//	starved      it says so only when documents that change all the time rest
//	late         it has not got a document that was written last
//
// A copy that says that it is complete, and is not, is silent loss.
package main
