// Package census finds out how the members of a cluster are: who is there, whom something is heard of, who fails what, who has been there
// for long enough to be given partitions, and who fails to take them. It is pure: [Census.Look] takes a view of the roster at a time, and
// what has happened to whom comes back as [Event]s; the policy makes plans and notices of them.
//
//	starting, healthy   is given partitions
//	degraded            a check fails, or its heartbeat is late: keeps what it has, gets nothing new
//	unhealthy           a critical check has failed for long enough: loses what it has
//	dead                its lease has ended, or its heartbeat has not changed for long: loses what it has, at once
//	stopping            says so itself: loses what it has, at once
//	refused             has another number of partitions, or its heartbeat cannot be read: is given nothing
//
// Ages are by the leader's clock, from when it saw a heartbeat change; members' timestamps are compared with their own only. Time in which
// the leader itself did not look counts against nobody.
//
// A check that half of the members fail, and at least two, says nothing of any of them while that is so. Silence says nothing either
// while the leader's own heartbeat does not come through. Who still fails it afterwards has a minute longer than one that fails alone.
//
// A member that comes is settled after 10 s without anybody's coming or going, 30 s at most; twice as long with each loss of the same
// member, up to five times, unless it lives for 5 minutes. One that restarts so quickly that its seat is not seen empty keeps its place,
// up to the second time.
//
// The assignment breaker of a member is a state machine of a few lines here and not a library's, because the same steps must lead to the
// same decisions: it has no clock of its own.
package census
