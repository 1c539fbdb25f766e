package fault

// handoffEntries are about partitions that move from node to node.
func handoffEntries() []Entry {
	return []Entry{
		{
			Code:    DrainNobody,
			Summary: "there is nobody to take what the node has",
			Meaning: "No other node of the cluster is healthy and not to be drained itself. Nothing was changed.",
			Remedy:  "Start another node, or take another drain back (`streamer drain NODE --undo`).",
		},
		{
			Code:    DrainUnfinished,
			Summary: "the node is not empty yet",
			Meaning: "The time that the command was given is over. The leader goes on moving the node's partitions, and gives it none.",
			Remedy:  "Give the command again to go on watching; `streamer status --handoffs` shows what moves, and `streamer drain NODE --undo` takes it back.",
		},
		{
			Code:    HandoffAbandoned,
			Summary: "the handoff was given up; the partition stays where it was",
			Meaning: "The recipient refused or was not ready in time, a node stopped, or etcd could not be written. The donor went on delivering all the time and saves checkpoints again: nothing was lost or delivered twice.",
			Remedy:  "Look at why (the text says it; the recipient's log too), then ask for the handoff again.",
		},
		{
			Code:    HandoffDead,
			Summary: "the node that is to get the partition is not there",
			Meaning: "It is known from the plan or owns something yet, but its membership has ended. Nothing was moved.",
			Remedy:  "Start the node, or name another (`streamer status --plan` lists them).",
		},
		{
			Code:    HandoffDetached,
			Summary: "the node that is to get the partition is cut off from etcd",
			Meaning: "Its membership may end at any time, or nothing has been heard of it for a while. Nothing was moved.",
			Remedy:  "See to the node's connection to etcd, or name another node.",
		},
		{
			Code:    HandoffMoving,
			Summary: "the partition is moving already",
			Meaning: "A handoff of it was begun before, by another operator or by the leader, and has not ended. That one goes on.",
			Remedy:  "Wait for its end (it has a deadline), then ask again if it is still wanted.",
		},
		{
			Code:    HandoffNoOwner,
			Summary: "there is nobody to hand the partition over",
			Meaning: "Nobody owns it at the moment, or its owner has changed since it was looked at. Nothing was moved.",
			Remedy:  "Wait until the leader has given it to a node, then ask again.",
		},
		{
			Code:    HandoffOlder,
			Summary: "the node that is to get the partition runs an older version",
			Meaning: "It might not read what the newer one has written. Nothing was moved.",
			Remedy:  "Upgrade the node first, or name another.",
		},
		{
			Code:    HandoffOwner,
			Summary: "the node owns the partition already",
			Meaning: "There is nothing to move.",
			Remedy:  "Name another node if it is to leave this one.",
		},
		{
			Code:    HandoffUnfit,
			Summary: "the node that is to get the partition should get nothing new",
			Meaning: "It says itself that it is degraded, unhealthy, starting or stopping, or is configured for another number of partitions. Nothing was moved.",
			Remedy:  "See to the node (its /health says what is wrong), or name another.",
		},
		{
			Code:    HandoffUnknown,
			Summary: "there is no such node",
			Meaning: "Neither the members nor the plan know a node of this name. Nothing was moved.",
			Remedy:  "Correct the name (`streamer status --plan` lists the nodes).",
		},
		{
			Code:    HandoffUnserved,
			Summary: "the recipient owned the partition but could not serve it, and gave it back",
			Meaning: "The handoff had been made; then the checkpoints or the log could not be read. Whoever claims the partition next goes on from its checkpoint: nothing is lost, some is delivered twice.",
			Remedy:  "Look at why (the text says it), and see to that node's connections to the store of checkpoints and to MongoDB.",
		},
	}
}
