package fault

// clusterEntries are what nodes meet with each other, their checkpoints and etcd, in the order of
// their codes.
func clusterEntries() []Entry {
	return []Entry{
		{
			Code:    ClusterBackend,
			Summary: "the cluster keeps its checkpoints in another backend",
			Meaning: "reliability.checkpoint.backend names etcd where the cluster's checkpoints are in MongoDB, or the other way round, or it is unknown whether they are. Every partition would start again at the cluster's origin, and everything acknowledged since then would be redelivered or lost. Nothing was written.",
			Remedy:  "Set reliability.checkpoint.backend, etcd.prefix and reliability.checkpoint.database as the other nodes have them. To move the checkpoints, stop all nodes, `streamer subscribers export FILE` with the old configuration, and `streamer subscribers import FILE` with the new one. If you do not need the old ones, use another cluster.id.",
		},
		{
			Code:    ClusterChanged,
			Summary: "the origin of the checkpoints changed concurrently",
			Meaning: "Another operator adopted the checkpoints or changed the number of partitions while this command ran, or this node began. It wrote nothing.",
			Remedy:  "Check the current state (`streamer subscribers list`) and repeat the command if it is still needed, or start the node again.",
		},
		{
			Code:    ClusterCorrupt,
			Summary: "the cluster's state in etcd cannot be read",
			Meaning: "A key below etcd.prefix that holds the owners, the leader or the plan is damaged, or another program wrote it. It was not changed. Nodes keep their partitions, and nothing moves.",
			Remedy:  "Inspect the named key (`etcdctl get`). If nothing else needs it, delete it: the nodes write it again. If other programs use the prefix, set another etcd.prefix.",
		},
		{
			Code:    ClusterCoverage,
			Summary: "a node reads less than another, or lacks a sink",
			Meaning: "The nodes differ in mongodb.watch, mongodb.operations or the sinks, as they do during a rolling change. Only nodes that cover all others own partitions, because a node that reads less would move the sinks' checkpoints past changes that it does not see. Nothing is lost, and every sink continues; the nodes that own partitions carry the load of all. The others serve gateways with the changes that they read.",
			Remedy:  "Finish the rolling change: give all nodes the same mongodb.watch, mongodb.operations and sinks. If no change is under way, correct the configuration of the node that differs.",
		},
		{
			Code:    ClusterHeartbeat,
			Summary: "a member's heartbeat cannot be read",
			Meaning: "The value of the member's key is not a heartbeat: another program wrote it, or a version that this one cannot read. The member keeps its partitions and gets no new ones; other members are not affected.",
			Remedy:  "Make sure that nothing else writes below etcd.prefix. The member's next heartbeat replaces the value; if it does not, restart the member with the version of the others.",
		},
		{
			Code:    ClusterOrigin,
			Summary: "this is not the etcd that the origin of the checkpoints names",
			Meaning: "The origin holds the id of etcd's cluster, etcd.prefix, and a random id that is stored in etcd, too; with checkpoints in MongoDB and several nodes the whole origin is stored in both. The configuration leads to another etcd or another prefix, etcd or MongoDB was restored or replaced, or an adoption was interrupted. Two clusters would depose each other, or new epochs would not be higher than those of the checkpoints. Nothing was written.",
			Remedy:  "Check etcd.endpoints, etcd.prefix, reliability.checkpoint.database and cluster.id. If they are right, because etcd was restored or replaced, stop all nodes and run `streamer cluster adopt`, which raises the incarnation in both and adopts the new etcd.",
		},
		{
			Code:    ClusterReplaced,
			Summary: "the cluster's origin is gone, or is that of another cluster",
			Meaning: "The key of the origin in etcd was deleted or replaced under running nodes, or a node starts where the origin is gone and other nodes still run. Running nodes give up their partitions and save no checkpoint: they do not join another cluster, and none is founded beside them. Gateways are served on from the log; sinks wait.",
			Remedy:  "Restore the origin, or all of etcd, from a backup: the nodes join again by themselves. To begin the cluster anew, stop all nodes first, and start them again when their leases have ended (cluster.lease_ttl).",
		},
		{
			Code:    ClusterUnknown,
			Summary: "there are no checkpoints of this cluster",
			Meaning: "No node has ever started with this cluster.id at this store, or the configuration leads to another store or database. Nothing was written.",
			Remedy:  "Pass the nodes' configuration with -f, and check cluster.id, reliability.checkpoint.backend, and etcd.prefix or reliability.checkpoint.database.",
		},
		{
			Code:    EtcdAlarm,
			Summary: "etcd has raised an alarm, or is about to",
			Meaning: "With NOSPACE etcd refuses every write: no checkpoint can be saved and no lease granted. With CORRUPT the data of one member differ from the others'.",
			Remedy:  "NOSPACE: compact, defragment, raise --quota-backend-bytes, then `etcdctl alarm disarm`. CORRUPT: replace the member.",
		},
		{
			Code:    EtcdCompaction,
			Summary: "etcd shows no sign of automatic compaction",
			Meaning: "etcd keeps every revision until it is compacted, and each round of checkpoints creates one. When its quota is used up, it refuses writes.",
			Remedy:  "Start etcd with --auto-compaction-mode=periodic --auto-compaction-retention=1h. If etcd has just been configured like this, the warning disappears after the first compaction.",
		},
		{
			Code:    EtcdExposed,
			Summary: "the connection to etcd is not protected",
			Meaning: "etcd is on another machine, and the node uses no TLS, or shows neither a password nor a certificate. An attacker who reads the network sees the password and where subscribers are; an attacker who writes to etcd can move checkpoints, so that changes are skipped.",
			Remedy:  "Use https:// endpoints with etcd.tls.ca_file, and turn on authentication in etcd: a user (etcd.username) or a client certificate (etcd.tls.cert_file) that may write below etcd.prefix only.",
		},
		{
			Code:    EtcdMember,
			Summary: "an etcd endpoint does not answer, or has no leader",
			Meaning: "The other endpoints work; after one more failure etcd may have no quorum.",
			Remedy:  "Restart the member, or correct etcd.endpoints; `etcdctl endpoint status` shows them all.",
		},
		{
			Code:    EtcdRefused,
			Summary: "etcd answered and refused the request",
			Meaning: "Authentication failed, a right is missing, a limit is exceeded, or the cluster has no quorum. Checkpoints are as they were.",
			Remedy:  "Check etcd.username and the role's rights on etcd.prefix, and the health of the etcd cluster (etcdctl endpoint health).",
		},
		{
			Code:    EtcdUnreachable,
			Summary: "no etcd endpoint can be reached",
			Meaning: "None of etcd.endpoints answered within etcd.dial_timeout. Checkpoints are as they were.",
			Remedy:  "Check etcd.endpoints, the network, and that etcd runs. One node that runs alone can do without it, with reliability.checkpoint.backend: mongo.",
		},
		{
			Code:    CheckpointCorrupt,
			Summary: "a checkpoint cannot be read",
			Meaning: "The stored checkpoint is damaged, or another program wrote it. It was not changed.",
			Remedy:  "Run `streamer subscribers rewind NAME --to TIME`, with `--partition` for a shared subscriber, as a sink: it replaces the checkpoint by the newest entry of its history. If there is none, restore the named key or document from a backup, or run `streamer subscribers delete NAME`: then a shared subscriber begins according to its start, and an exclusive one at the position that it sends, else according to its start policy.",
		},
		{
			Code:    CheckpointNewer,
			Summary: "a checkpoint was written by a newer version",
			Meaning: "This version does not know the checkpoint's format and would lose part of it. It was not changed.",
			Remedy:  "Run the version that wrote the checkpoint, or a later one.",
		},
		{
			Code:    CheckpointPartitions,
			Summary: "the checkpoints were made for another number of partitions",
			Meaning: "A document's partition depends on cluster.partitions; with another number the checkpoints would not match the documents. They were not changed.",
			Remedy:  "Set cluster.partitions to the number in the message. To change the number, stop all nodes and run `streamer cluster repartition`; if that was interrupted, run it again.",
		},
		{
			Code:    CheckpointRepartition,
			Summary: "the number of partitions cannot be changed now",
			Meaning: "In every new partition, shared subscribers start at the earliest position that any of them has in the old ones. The oplog must still reach back to it, their snapshots must be complete, and the number must differ from the current one. Nothing was changed.",
			Remedy:  "Let the cluster run until its subscribers have caught up and their snapshots are complete (`streamer cluster repartition --dry-run` shows where they are), stop it, and try again.",
		},
		{
			Code:    CheckpointRewind,
			Summary: "a subscriber cannot be rewound to this position",
			Meaning: "A rewind moves a checkpoint back, never forward, because the changes between would be lost silently; and the oplog must still reach back to the position. A partition of a sink that has lost its checkpoint would be left out. The checkpoint was not changed.",
			Remedy:  "Choose a position before the checkpoint and after the oplog's oldest entry; `streamer subscribers rewind NAME --to TIME --dry-run` shows both. If a partition has lost its checkpoint, try again while a node serves it: the node saves another one.",
		},
		{
			Code:    CheckpointSource,
			Summary: "the checkpoints were made with another MongoDB deployment",
			Meaning: "The origin names another replica set or sharded cluster than mongodb.uri. Positions of one are meaningless in the other.",
			Remedy:  "Correct mongodb.uri, or give this deployment checkpoints of its own with another cluster.id. If it is the same data, restored or moved, accept it with `streamer cluster adopt --source`.",
		},
		{
			Code:    CheckpointUnreadable,
			Summary: "the checkpoint store does not answer",
			Meaning: "The subscriber sent no position, and its checkpoint could not be read. Nothing was delivered.",
			Remedy:  "Reconnect; the client library does so automatically. If the error persists, check the checkpoint store: etcd or MongoDB.",
		},
		{
			Code:    NodeAddressInUse,
			Summary: "the address to listen on is in use",
			Meaning: "Another process listens there already. Nothing was started and no checkpoint was touched.",
			Remedy:  "Stop the other process, or set the named key (http.listen or grpc.listen) to a free address.",
		},
		{
			Code:    NodeDetached,
			Summary: "the node is cut off from its cluster",
			Meaning: "It could not renew its lease in time, because etcd did not answer or the machine was suspended, and other nodes may have taken over its partitions. It delivers nothing of them until it is a member again; nothing is lost.",
			Remedy:  "Reconnect to another node of the cluster with the last positions. If all nodes report this, check etcd.",
		},
		{
			Code:    NodeFiles,
			Summary: "the limit of open files is low",
			Meaning: "Every connection is an open file. The process may have fewer than its clients, MongoDB, etcd and sinks may need together, so its servers accept fewer connections than gateway.max_sessions and http.max_clients allow; further clients wait.",
			Remedy:  "Raise the limit (LimitNOFILE of systemd, ulimit -n, the container's), or lower gateway.max_sessions and http.max_clients.",
		},
		{
			Code:    NodeLog,
			Summary: "nobody reads the log",
			Meaning: "Standard error is a pipe or terminal whose reader does not read. Up to 1 MiB of lines waits; further lines are dropped, and counted in streamer_log_dropped_lines_total. The node itself continues.",
			Remedy:  "Start or restart what reads the node's standard error (the container runtime, journald, a pipe). A line in the log then says how many were dropped.",
		},
		{
			Code:    NodeRunning,
			Summary: "another process owns these checkpoints",
			Meaning: "Two processes on the same checkpoints would deliver twice and keep deposing each other, so the second is refused. The first one is not affected. It may be one of several nodes that share the partitions of checkpoints in MongoDB; MongoDB remembers them even if none of them is running.",
			Remedy:  "Stop the named process, set another cluster.id for this one, or set cluster.expected_nodes to the same number as on the other nodes. To run a single node instead, start it with --take-over, which ends the ownership of the others immediately; if nodes have shared the partitions of checkpoints in MongoDB, it must reach their etcd.",
		},
		{
			Code:    NodeStopping,
			Summary: "the node is stopping",
			Meaning: "It is shutting down and accepts no new subscribers. Nothing was delivered on this connection, and nothing is lost.",
			Remedy:  "Reconnect to another node, or to this one after its restart, with the id of the last event received.",
		},
		{
			Code:    NodeTermLost,
			Summary: "the node lost its partitions to another process",
			Meaning: "Another process took over, or this one was suspended for longer than its lease. The new owner redelivers the changes after the last checkpoint.",
			Remedy:  "If no operator did this, look for long pauses of this machine or a broken connection to the checkpoint store.",
		},
		{
			Code:    NodeUnreachable,
			Summary: "no node answers at the address",
			Meaning: "Nothing listens there, or the process that listens is not a node. Nothing was changed, unless the message says that it is not known.",
			Remedy:  "Check --address (http.listen of the node's configuration), and that the node runs.",
		},
	}
}
