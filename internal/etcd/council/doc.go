// Package council keeps the roster of a cluster in etcd: who is there, who owns what, who leads, and the leader's plan.
//
//	member/<node>    a heartbeat               under the member's lease
//	owner/00042      who owns partition 42     under the member's lease; the same keys as those of a cluster of one (package owner)
//	plan             the leader's plan         its version is etcd's own count of the key's writes
//	leader/<lease>   who wants to lead         under leases of their own; the oldest key's is elected
//	wish/pin/00042   where operators want it   under a lease that nobody renews: a pin has done its work when the partition is there
//	wish/drain/node  whom they want empty      until that is taken back
//
// # Fences
//
// Everything that a member writes it writes only where the origin stands as it did when the member joined, and its heartbeat's key is there
// under its lease: an operator ends all memberships by adopting the marks, and one by deleting its key or its lease. Everything that a
// leader writes it writes only where its own key in the election is there. A process that has stood still for longer than its lease lives
// is refused by these conditions, whatever it believes. Wishes are written only where the origin is of as many partitions.
//
// A claim is a nested transaction for each partition, If nobody owns it Then put Else get, so that what it returns is how the owners
// stand. The epoch is the origin's incarnation and the revision of the put. Keys that were written before the origin are of an incarnation
// before.
//
// # Answers that get lost
//
// Requests of which nobody knows whether they were carried out are sent again until that is known, or their context ends: each can be
// carried out twice. A join finds its own lease under the key, a claim its own too, a plan that stands is compared with the one to be
// published, and what gives or evicts names the epoch. A claim that arrives after its partition was given back claims it again for a
// member that does not know: the next view shows it.
//
// # Leases
//
// A member's lease is renewed when it says so and never by the client, over one stream for each lease; a renewal counts from when the request
// was sent that was answered. The leader's is the client's own session: that it ends by itself with its process is all that is asked of it.
package council
