// Package plan decides who should own which partition, which owners are evicted, and what operators
// are told. It is pure: [Planner.Step] takes the time and a view of the cluster, and the same steps
// give the same decisions. Its parts are the members' health (health.go, gateway.go), the planner
// (step.go), and [Assign], which distributes partitions among members (assign.go).
//
// # When there is another plan
//
//	dead, stopping, unhealthy ──► at once
//	new, or back, and settled ──► plan
//	cluster was off ──► until the expected members are there, or those of the last plan, or 10 s ──► plan
//	anything else that changes what [Assign] is asked ──► plan, if the answer is another
//
// A cluster was off if nobody owns anything, or fewer than half of those are there whom the plan
// names. Of partitions that could stay where they are, at most Config.Moves are moved by one plan,
// and no others before their new owners serve them; none at all while half of the members fail the
// same check. Rates of events enter as averages over the last 20 periods of Config.Rebalance, and
// how much a member's rate differs between tenths of that time tells what is chance. At most four
// partitions are exchanged for balance in ten periods, but for a member that has had half of its
// share too much all the time; who has been moved is not exchanged for Config.RebalanceCooldown, so
// that noise moves next to nothing and nothing comes back. A new leader measures for five periods
// first. Its first view is taken as it is: plan and owners stand.
//
// Where nobody is fit to be given partitions, the next best are: those that have not settled, or
// fail what half of all fail; then those that are degraded, or have failed. A partition with a
// doubtful owner is better off than one without, and where there is nobody at all everybody keeps
// what it has.
//
// # Verification
//
// A partition has to be served by whom the plan gives it to, by that member's own heartbeat under
// the key's epoch, within Config.Grace of the plan, or of the claim; who gives up partitions one
// after the other has as long for each. Where it is not:
//
//   - nobody has the key, or its owner does not serve: a failure of the member. The partition goes
//     to another one, the key is taken away.
//   - another one has the key and serves: the partition stays there, and both are left alone for a
//     while.
//   - another one has the key and does not serve, or has to go: a failure of that one. Its key is
//     taken away; from one that is dead though its lease lives, at once.
//
// Failures open the member's assignment breaker: with the third it is given nothing for 30 s, then
// one partition to try; two successes close it, a failed trial doubles the wait. A restart resets
// it. If half of the members fail at once, it is nobody's failure.
//
// # Restarts
//
// Another process, or another time of its start, under the same name is a restart. 5 s later the
// member is resynced: its partitions are looked at, 10 a second for all members together, the plan
// is published once more if it does not serve some of them, and the resync is complete when it
// serves all. A gateway is sent the last notices instead, by the node to which it connects.
// Takeovers do not wait for that.
//
// # Gateways
//
// Gateways are members of which the nodes' heartbeats tell, and are given no partitions. One that
// has left says so. One that no node names is late, and then dead, after the same times as a node
// that is not heard; not while some node does not name all of its gateways. A new leader knows
// those that are named then.
//
// # Bounds
//
// Kept are the members that are there, with at most 256 gateways of a node, and at most 1,024 of
// those that went in the last half hour, some 150 bytes a partition, and 10 notices.
package plan
