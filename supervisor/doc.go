// Package supervisor supervises the components of all nodes: it watches their progress, restarts
// stalled ones, and reports.
//
// The leader sweeps. Every interval it asks each component of each node at GET
// /internal/health/SLUG, in parallel. An answer counts only if the component has made progress: one
// that answers and does nothing misses its heartbeat like one that does not answer. Consecutive
// misses lead to a restart, then to a page:
//
//	miss 1      counted, nothing else
//	miss 2      a stalled component is restarted within its process, if the process answers
//	miss 3      a page (missed_heartbeats_to_alert); a component that cannot be restarted within its
//	            process has the process restarted
//	miss 5      the process is restarted if restarting the component did not help
//	progress    misses are 0 again; a notice if it was paged or restarted
//
// A restart is an order in the store that names its process. The order, its charge against the
// budget of the component, and the report are one write, which succeeds only while no other node
// sweeps. So a deposed leader restarts nothing, and a change of leaders never exceeds a component's
// budget.
//
// Gateways are not swept: a client may use any name, and must page nobody. The leader judges them
// as members, and warns (cluster/plan).
//
// Nothing is restarted while at least half of the nodes do not answer, because then the cause is
// the network or the sweeping node. Of many components that fail at once only a few are restarted
// at a time.
//
// Every node watches for new reports (a deadman) and pages if there is none for two intervals.
// Nothing in this package waits for MongoDB.
//
// The judge is pure: it maps observations to actions. The loops are in supervisor.go, deadman.go
// and orders.go.
//
// # Not obvious, and the tests that guard it
//
//   - An order to restart, its charge against the budget and the report are one transaction, which
//     holds only while nobody else has begun to sweep
//     (TestLeaderThatIsDeposedInASweepRestartsNobody, TestSupervisionInEtcdIsAStore,
//     TestBudgetHoldsAndEveryMissCounts)
package supervisor
