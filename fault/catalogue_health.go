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
			Meaning: "The node's position is more than reliability.lag_threshold older than the last operation, so every subscriber is late.",
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
			Remedy:  "Find out why the process has ended or makes no progress, and start it again. If it will not return, lower cluster.expected_nodes.",
		},
		{
			Code:    NodeStarting,
			Summary: "the node is not ready yet",
			Meaning: "It opens its change stream, or waits for its first partitions or for the lease of another process to end.",
			Remedy:  "Wait some seconds. If this stays, the other problems and the node's log say why.",
		},
		{
			Code:    ReceiverUnreachable,
			Summary: "what notices, pings or traces are posted to cannot be reached",
			Meaning: "No connection could be made to the host of notices.webhook.url, supervisor.ping_url or tracing.endpoint, or its certificate is not accepted. Nodes start and deliver without it; what they post is tried again a few times, then counted and dropped.",
			Remedy:  "Correct the address, let the node reach it (a proxy: HTTPS_PROXY, NO_PROXY), and let SSL_CERT_FILE name a private authority.",
		},
		{
			Code:    RetentionBucket,
			Summary: "the bucket of the retained log does not exist",
			Meaning: "The store answers, and has no bucket of that name for these credentials. Delivery continues. Nothing is retained meanwhile; the node writes it from the oplog later, as long as the oplog has it.",
			Remedy:  "Create the bucket that retention.store names, or correct its name or its endpoint. The node tries again by itself.",
		},
		{
			Code:    RetentionClock,
			Summary: "the store of the retained log refuses the node's clock",
			Meaning: "S3 refuses requests whose time differs from its own by more than 15 minutes. Delivery continues. Nothing is retained meanwhile; the node writes it from the oplog later, as long as the oplog has it.",
			Remedy:  "Set the clock of the node's machine (chrony, systemd-timesyncd), or of the store's. The node tries again by itself.",
		},
		{
			Code:    RetentionCondition,
			Summary: "the store of the retained log overwrites objects",
			Meaning: "The store does not honour If-None-Match: * (Google Cloud Storage and some S3 gateways do not), so two nodes could write the same segment. The node writes nothing there. Delivery continues.",
			Remedy:  "Use a store with conditional writes, such as AWS S3, Cloudflare R2, MinIO or versitygw, or a folder (file:///…). `streamer check` tests a store without starting a node.",
		},
		{
			Code:    RetentionForbidden,
			Summary: "the store of the retained log refuses the node's credentials",
			Meaning: "The credentials are missing, unknown or expired, or do not allow the request. Delivery continues. Nothing is retained meanwhile; the node writes it from the oplog later, as long as the oplog has it.",
			Remedy:  "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SHARED_CREDENTIALS_FILE, or a role, and allow s3:ListBucket on the bucket and s3:GetObject, s3:PutObject and s3:DeleteObject below the prefix (docs/retention.md). The node tries again by itself, and reads the file again.",
		},
		{
			Code:    RetentionHistory,
			Summary: "the retained log has another history than MongoDB",
			Meaning: "MongoDB does not have the last change of the retained log at its time: it was restored from a backup. Nothing more is written to the retained log; delivery continues.",
			Remedy:  "Adopt the restored deployment (`streamer cluster adopt`), which begins a new retained log. If MongoDB was not restored, look for a node that reads another deployment.",
		},
		{
			Code:    RetentionRegion,
			Summary: "the bucket of the retained log is in another region",
			Meaning: "The store answers that the bucket belongs to another region or endpoint. Delivery continues. Nothing is retained meanwhile; the node writes it from the oplog later, as long as the oplog has it.",
			Remedy:  "Name the bucket's region in retention.store (?region=eu-central-1) or in AWS_REGION, and start the node again.",
		},
		{
			Code:    RetentionStore,
			Summary: "the store of the retained log fails",
			Meaning: "Delivery continues. Nothing is retained meanwhile; the node writes it from the oplog later, as long as the oplog has it. Subscribers whose positions have left the oplog wait for up to 5 minutes, and then get a loss.",
			Remedy:  "Look at the store that retention.store names: its disk, its permissions, its network. The node tries again by itself.",
		},
		{
			Code:    RetentionUnreachable,
			Summary: "the store of the retained log does not answer",
			Meaning: "The node cannot connect to the store, or gets no answer in time. Delivery continues. Nothing is retained meanwhile; the node writes it from the oplog later, as long as the oplog has it. Subscribers whose positions have left the oplog wait for up to 5 minutes, and then get a loss.",
			Remedy:  "Look at the endpoint that retention.store names, at its name in DNS, its certificate, firewalls and proxies (HTTPS_PROXY). The node tries again by itself.",
		},
		{
			Code:    RetentionVersions,
			Summary: "the bucket of the retained log keeps versions of deleted objects",
			Meaning: "Expired segments stay as old versions: they cost as much as before, and documents that were to be gone can be read.",
			Remedy:  "Use a bucket without versioning and without object lock, or add a lifecycle rule that deletes noncurrent versions after a day.",
		},
		{
			Code:    SubscriberHeadRoom,
			Summary: "a subscriber is near the end of the oplog",
			Meaning: "The oplog is full, and the subscriber's position is about to leave it. Then changes are lost for it.",
			Remedy:  "Let the subscriber catch up: look for a slow handler or an unreachable target. If outages may last this long, enlarge the oplog (replSetResizeOplog).",
		},
		{
			Code:    SubscriberLate,
			Summary: "a sink is late",
			Meaning: "Its target acknowledges, but more slowly than changes come, or an operator has paused it, so its checkpoint is more than reliability.lag_threshold old.",
			Remedy:  "If it is paused, resume it: `streamer sinks resume NAME`. Otherwise look at the target's own load, and at the sink's retries and rate (`streamer sinks status`).",
		},
	}
}
