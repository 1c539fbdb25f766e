package fault

// handoffEntries are about partitions that move from node to node.
func handoffEntries() []Entry {
	return []Entry{
		{
			Code:    DrainNobody,
			Summary: "no other node can take over the partitions",
			Meaning: "No other node of the cluster is healthy and not being drained. Nothing was changed.",
			Remedy:  "Start another node, or undo another drain (`streamer drain NODE --undo`).",
		},
		{
			Code:    DrainUnfinished,
			Summary: "the node is not empty yet",
			Meaning: "The time limit of the command is over. The leader continues to move the node's partitions, and assigns it no new ones.",
			Remedy:  "Run the command again to continue watching. `streamer status --handoffs` shows what moves, and `streamer drain NODE --undo` cancels the drain.",
		},
		{
			Code:    HandoffAbandoned,
			Summary: "the handoff was abandoned; the partition stays where it was",
			Meaning: "The recipient refused or was not ready in time, a node stopped, or etcd could not be written. The donor kept delivering and saving checkpoints: nothing was lost or delivered twice.",
			Remedy:  "Check the reason in the message and in the recipient's log, then request the handoff again.",
		},
		{
			Code:    HandoffDead,
			Summary: "the recipient is not running",
			Meaning: "The plan names it, or it still owns partitions, but its membership has ended. Nothing was moved.",
			Remedy:  "Start the node, or choose another one (`streamer status --plan` lists them).",
		},
		{
			Code:    HandoffDetached,
			Summary: "the recipient is cut off from etcd",
			Meaning: "Its membership may end at any time, or it has sent no heartbeat for a while. Nothing was moved.",
			Remedy:  "Check the node's connection to etcd, or choose another node.",
		},
		{
			Code:    HandoffMoving,
			Summary: "the partition is already moving",
			Meaning: "Another operator or the leader has started a handoff of it that has not ended. That one continues.",
			Remedy:  "Wait for its end (it has a deadline), then try again if it is still needed.",
		},
		{
			Code:    HandoffNoOwner,
			Summary: "the partition has no owner that could hand it over",
			Meaning: "No node owns it now, or its owner has just changed. Nothing was moved.",
			Remedy:  "Wait until the leader has assigned it to a node, then try again.",
		},
		{
			Code:    HandoffOlder,
			Summary: "the recipient runs an older version",
			Meaning: "It might not be able to read data of the newer version. Nothing was moved.",
			Remedy:  "Upgrade the node first, or choose another one.",
		},
		{
			Code:    HandoffOwner,
			Summary: "the node already owns the partition",
			Meaning: "There is nothing to move.",
			Remedy:  "Choose another node to move the partition away from this one.",
		},
		{
			Code:    HandoffUnfit,
			Summary: "the recipient cannot take new partitions",
			Meaning: "It reports that it is degraded, unhealthy, starting or stopping, it is being drained, or it is configured for another number of partitions. Nothing was moved.",
			Remedy:  "Repair the node (its /health names the problem), or choose another one.",
		},
		{
			Code:    HandoffUnknown,
			Summary: "there is no such node",
			Meaning: "No member and no node of the plan has this name. Nothing was moved.",
			Remedy:  "Correct the name (`streamer status --plan` lists the nodes).",
		},
	}
}
