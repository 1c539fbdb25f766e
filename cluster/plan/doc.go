// Package plan assigns partitions to members, evicts owners, and writes notices for operators. It
// is pure: [Planner.Step] takes the time and a view of the cluster, and the same steps give the
// same decisions. Its parts are the members' health (health.go, gateway.go), the planner (step.go),
// and [Assign], which distributes partitions among members (assign.go).
//
// # When there is another plan
//
//	dead, stopping, unhealthy ──► at once
//	new, or back, and settled ──► plan
//	cluster was off ──► until the expected members are there, or those of the last plan, or 10 s ──► plan
//	anything else that changes what [Assign] is asked ──► plan, if the answer is another
//
// A cluster was off if no partition has an owner, or if fewer than half of the members in the plan
// are present. Of partitions that could stay where they are, one plan moves at most Config.Moves,
// and the next ones only when the new owners serve these; none at all while half of the members
// fail the same check. Rates of events are averages over the last 20 periods of Config.Rebalance;
// the variation of a member's rate between tenths of that time measures chance. At most four
// partitions are exchanged for balance in ten periods, except for a member that has been half above
// its share all the time. A partition that has moved is not exchanged again for
// Config.RebalanceCooldown, so that noise moves next to nothing and nothing moves back. A new
// leader measures for five periods first. It accepts its first view: the plan and the owners
// remain.
//
// If no member is fit for new partitions, the next best get them: members that have not settled, or
// that fail a check which half of all fail; then members that are degraded, or have failed. A
// doubtful owner is better for a partition than none. If no member is left at all, every member
// keeps its partitions.
//
// # Verification
//
// The member to which the plan assigns a partition must serve it within Config.Grace of the plan,
// or of the claim, according to its own heartbeat under the key's epoch. A member that hands over
// partitions one after the other has this time for each. If it does not:
//
//   - the key does not exist, or its owner does not serve: a failure of the member. The partition
//     goes to another one, the key is taken away.
//   - another one has the key and serves: the partition stays there, and both have no part in plans
//     for a while.
//   - another one has the key and does not serve, or has to go: a failure of that one. Its key is
//     taken away; from one that is dead though its lease lives, at once.
//
// Failures open the member's assignment breaker: after the third it gets no partition for 30 s,
// then one as a trial; two successes close it, a failed trial doubles the wait. A restart resets
// it. If half of the members fail at once, no member is blamed.
//
// # Restarts
//
// Another process, or another start time, under the same name is a restart. 5 s later the member is
// resynced: the leader checks its partitions, 10 a second for all members together, publishes the
// plan once more if the member does not serve some of them, and the resync is complete when it
// serves all. A gateway gets the last notices instead, from the node to which it connects.
// Takeovers do not wait for that.
//
// # Gateways
//
// Gateways are members, too. The nodes name them in their heartbeats, and they get no partitions. A
// gateway that leaves is marked as gone. One that no node names is late, and then dead, after the
// same times as a node without heartbeats, but not while some node does not name all of its
// gateways. A new leader knows the gateways that are named at that time.
//
// # Bounds
//
// Kept are the members that are there, with at most 256 gateways of a node, and at most 1,024 of
// those that went in the last half hour, some 150 bytes a partition, and 10 notices.
//
// # Not obvious, and the tests that guard it
//
//   - Shares are dealt out by a divisor method: with largest remainders a death could take a
//     partition from a living member (TestDeathMovesWhatTheDeadHadAndNothingElse,
//     TestRestartMovesNothingForGood)
//   - Only members that read all that the others read, and serve all their sinks, own partitions:
//     others would move checkpoints past changes that they do not see
//     (TestOnlyMembersThatCoverAllOthersOwnPartitions, TestNodeThatReadsLessOwnsNothing,
//     TestSinkThatOneNodeLacksGoesOn)
//   - A failure that half of the members share is nobody's: 20 s without a primary move no
//     partition (test/process.TestNoPrimaryForEverybodyMovesNothing,
//     TestWhatHalfFailToServeIsNobodysFailure)
//   - The plan is a function of its input: without an outside change no plan undoes another
//     (TestPlansAreSoundAndComeToRest, TestRebalancingRestsUnderNoisyTraffic)
//   - Time in which the leader did not look counts against nobody
//     (TestSilenceCountsNothingWhileTheLeadersOwnHeartbeatFails)
package plan
