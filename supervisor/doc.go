// Package supervisor looks after the components of all nodes: it watches their progress, restarts what does not get on, and reports.
//
// The leader sweeps. Every interval it asks each component of each node at GET /internal/health/SLUG, in parallel, and looks at the checks that gateways
// report in heartbeats. An answer counts by the progress that it tells of, so a component that answers and does nothing misses its heartbeat as one
// that does not answer at all. Misses in a row lead to a restart, then to a page:
//
//	miss 1      counted, nothing else
//	miss 2      a lane that stands still in a process that answers is restarted within it
//	miss 3      a page (missed_heartbeats_to_alert); what has no restart of its own has its process restarted
//	miss 5      what its lane's restart did not help has its process restarted
//	progress    misses are 0 again; a notice if it was paged or restarted
//
// A restart is an order in the store that names the process it is for. The order, its charge against the budget of the component, and the report
// are one write, which holds only while nobody else sweeps: no leader that was deposed restarts anything, and no change of leaders gives a component
// more restarts than its budget.
//
// Nobody is restarted while at least half of the nodes do not answer, because then the cause is the network or the node that sweeps; and of many
// that fail at once only few are restarted at a time.
//
// Every node watches that reports appear (a deadman): where none has for two intervals it pages. Nothing here waits for MongoDB.
//
// The judge is pure: it takes what was seen and returns what to do. The loops are in supervisor.go, deadman.go and orders.go.
package supervisor
