package fault

// healthEntries are problems of a running node that have no error of their own, in the order of
// their codes.
func healthEntries() []Entry {
	return []Entry{
		{
			Code:    CheckpointUnsaved,
			Summary: "checkpoints cannot be saved",
			Meaning: "The store of the checkpoints refuses or does not answer the last round. Delivery continues. The longer this lasts, the more is redelivered after a crash.",
			Remedy:  "Check the checkpoint store, etcd or MongoDB. The node tries again by itself.",
		},
		{
			Code:    ClusterLeaderless,
			Summary: "the cluster has no leader",
			Meaning: "Nobody makes plans. The owners of partitions continue; partitions of nodes that fail now are not reassigned.",
			Remedy:  "A new leader is elected within seconds. If this stays, check that a majority of etcd's members answers.",
		},
		{
			Code:    ClusterUnowned,
			Summary: "partitions are not served",
			Meaning: "Sinks and standard output get nothing of these partitions until a node owns them. Gateways and event streams are served.",
			Remedy:  "Check that the cluster has a leader and healthy nodes, and that they reach etcd. A node that has just started needs some seconds.",
		},
		{
			Code:    LogLate,
			Summary: "the node reads the oplog late",
			Meaning: "What the node has read is more than reliability.lag_threshold older than the last operation, so every subscriber is late.",
			Remedy:  "Look for a busy MongoDB or a busy node (CPU, network), and, with shards, at mongodb.tick.",
		},
		{
			Code:    LogStuck,
			Summary: "nothing is read of the oplog",
			Meaning: "MongoDB answers other requests, but the change stream is closed, or brings nothing although the oplog advances.",
			Remedy:  "Look at the node's log for why the stream breaks, and at MongoDB's log for slow or killed cursors. Restart the node if it does not recover.",
		},
		{
			Code:    NodeMissing,
			Summary: "a node is missing",
			Meaning: "It has sent no heartbeat for several intervals, or there are fewer nodes than cluster.expected_nodes. When its lease has ended, the leader reassigns its partitions.",
			Remedy:  "Find out why the process has ended or stands still, and start it again. If it is to stay away, lower cluster.expected_nodes.",
		},
		{
			Code:    NodeStarting,
			Summary: "the node is not ready yet",
			Meaning: "It opens its change stream, or waits for its first partitions or for the lease of another process to end.",
			Remedy:  "Wait some seconds. If this stays, the other problems and the node's log say why.",
		},
		{
			Code:    RetentionHistory,
			Summary: "the retained log has another history than MongoDB",
			Meaning: "MongoDB does not have the last change of the retained log at its time: it was restored from a backup. Nothing is written to the retained log any more; delivery continues.",
			Remedy:  "Adopt the restored deployment (`streamer cluster adopt`), which begins a new retained log. If MongoDB was not restored, look for a node that reads another deployment.",
		},
		{
			Code:    RetentionStore,
			Summary: "the store of the retained log fails",
			Meaning: "Delivery continues. Nothing is retained meanwhile; the node writes it from the oplog later, as long as the oplog has it. Subscribers whose positions have left the oplog wait for up to 5 minutes, and then get a loss.",
			Remedy:  "Look at the store that retention.store names: its disk, its permissions, its network. The node tries again by itself.",
		},
		{
			Code:    SubscriberHeadRoom,
			Summary: "a subscriber is near the end of the oplog",
			Meaning: "The oplog is full, and the subscriber's position is about to leave it. Then changes are lost for it.",
			Remedy:  "Let the subscriber catch up: look for a slow handler or a target that is away. If outages may last this long, enlarge the oplog (replSetResizeOplog).",
		},
		{
			Code:    SubscriberLate,
			Summary: "a sink is late",
			Meaning: "Its target acknowledges, but more slowly than changes come, so its checkpoint is more than reliability.lag_threshold old.",
			Remedy:  "Look at the target's own load, and at the sink's retries and rate (`streamer sinks status`).",
		},
	}
}
