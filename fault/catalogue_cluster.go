package fault

// clusterEntries are what nodes meet with each other, their checkpoints and etcd, in the order of their codes.
func clusterEntries() []Entry {
	return []Entry{
		{
			Code:    ClusterBackend,
			Summary: "the cluster keeps its checkpoints in another backend",
			Meaning: "reliability.checkpoint.backend names etcd where the cluster's checkpoints are in MongoDB, or the other way round, or it cannot be known whether they are. Every partition would begin where the cluster once began, and what was acknowledged since would come again or be lost. Nothing was written.",
			Remedy:  "Set reliability.checkpoint.backend, etcd.prefix and marks.database as the other nodes have them. To move the checkpoints, stop all nodes, `streamer subscribers export FILE` with the old configuration, and `streamer subscribers import FILE` with the new one. Where the old ones are not wanted, use another cluster.id.",
		},
		{
			Code:    ClusterChanged,
			Summary: "somebody else changed the origin of the checkpoints meanwhile",
			Meaning: "Two operators adopted the checkpoints or changed the number of partitions at the same time, or one between the look and the deed of the other. Nothing was written by the command.",
			Remedy:  "Look at what stands (`streamer subscribers list`) and give the command again if it is still wanted.",
		},
		{
			Code:    ClusterCorrupt,
			Summary: "what the cluster keeps in etcd cannot be read",
			Meaning: "A key below etcd.prefix that says who owns or leads, or the plan, was damaged or written by something else. It was left as it was. Nodes go on with the partitions that they have, and nothing moves.",
			Remedy:  "Look at the key named (`etcdctl get`). If nothing else needs it, delete it: the nodes write it anew. If other programs use the prefix, give this cluster one of its own.",
		},
		{
			Code:    ClusterHeartbeat,
			Summary: "a member's heartbeat cannot be read",
			Meaning: "What stands under the member's key is no heartbeat: something else wrote there, or a version that this one cannot read. The member keeps what it has and is given nothing; the others go on.",
			Remedy:  "See that nothing else writes below etcd.prefix. The member's next heartbeat mends it; if none does, restart the member with the version of the others.",
		},
		{
			Code:    ClusterOrigin,
			Summary: "this is not the etcd that the origin of the checkpoints names",
			Meaning: "The origin holds the id of etcd's cluster, etcd.prefix, and a random id that stands in etcd too; with checkpoints in MongoDB and several nodes the whole origin stands in both. The configuration leads to another etcd or another prefix, etcd or MongoDB was restored or replaced, or an adoption ended half-way. Two clusters would depose each other, or epochs of etcd would not be above those of the checkpoints. Nothing was written.",
			Remedy:  "Check etcd.endpoints, etcd.prefix, marks.database and cluster.id. If they are right, because etcd was restored or replaced, stop all nodes and give `streamer cluster adopt`, which raises the incarnation in both and takes the new etcd.",
		},
		{
			Code:    ClusterUnknown,
			Summary: "there are no checkpoints of this cluster",
			Meaning: "No node has ever started with this cluster.id at this store, or the configuration leads to another store or database. Nothing was written.",
			Remedy:  "Give the nodes' own configuration with -f, and check cluster.id, reliability.checkpoint.backend, and etcd.prefix or marks.database.",
		},
		{
			Code:    EtcdAlarm,
			Summary: "etcd has raised an alarm, or is about to",
			Meaning: "With NOSPACE etcd refuses every write: no checkpoint can be saved and no claim be renewed. With CORRUPT a member's data differ from the others'.",
			Remedy:  "NOSPACE: compact, defragment, raise --quota-backend-bytes, then `etcdctl alarm disarm`. CORRUPT: replace the member.",
		},
		{
			Code:    EtcdCompaction,
			Summary: "etcd shows no sign of automatic compaction",
			Meaning: "etcd keeps every revision until it is told to compact, and each round of checkpoints makes one: in the end its quota is used up and it refuses writes.",
			Remedy:  "Start etcd with --auto-compaction-mode=periodic --auto-compaction-retention=1h. On an etcd that has just been set up so, the warning goes with the first compaction.",
		},
		{
			Code:    EtcdMember,
			Summary: "an etcd endpoint does not answer, or has no leader",
			Meaning: "The others serve; with one more failure there may be no quorum.",
			Remedy:  "Start the member again or correct etcd.endpoints; `etcdctl endpoint status` shows them all.",
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
			Remedy:  "Check etcd.endpoints, the network, and that etcd runs; or keep the checkpoints in MongoDB with reliability.checkpoint.backend: mongo.",
		},
		{
			Code:    CheckpointCorrupt,
			Summary: "a checkpoint cannot be read",
			Meaning: "The stored checkpoint is damaged or was written by something else. It was left as it was.",
			Remedy:  "Look at the checkpoint's key or document named; restore it from a backup, or give `streamer subscribers delete NAME`: a shared subscriber starts again from the origin then, an exclusive one where it tells or its start policy says.",
		},
		{
			Code:    CheckpointNewer,
			Summary: "a checkpoint was written by a newer version",
			Meaning: "This version does not know the checkpoint's format and would lose what it holds. It was left as it was.",
			Remedy:  "Run the version that wrote the checkpoint, or a later one.",
		},
		{
			Code:    CheckpointPartitions,
			Summary: "the checkpoints were made for another number of partitions",
			Meaning: "A document's partition depends on cluster.partitions; with another number the checkpoints would not fit the documents. They were left as they were.",
			Remedy:  "Set cluster.partitions to the number named. To have another one, stop all nodes and give `streamer cluster repartition`; where that was killed half-way, give it once more.",
		},
		{
			Code:    CheckpointRepartition,
			Summary: "the partitions cannot be counted anew like this",
			Meaning: "Shared subscribers begin in every new partition where the earliest of them is in the old ones. The oplog must still hold what comes after that, their snapshots must be complete, and the number must be another one. Nothing was changed.",
			Remedy:  "Let the cluster run until its subscribers have caught up and their snapshots are complete (`streamer cluster repartition --dry-run` shows where they are), stop it, and try again.",
		},
		{
			Code:    CheckpointRewind,
			Summary: "a subscriber cannot be rewound to this position",
			Meaning: "A rewind moves a checkpoint back, never forward, because what is between would be lost in silence; and the oplog must still hold what is to be read again. The checkpoint was left where it was.",
			Remedy:  "Choose a position before the checkpoint and after the oplog's oldest entry; `streamer subscribers rewind NAME --to TIME --dry-run` shows both.",
		},
		{
			Code:    CheckpointSource,
			Summary: "the checkpoints were made with another MongoDB deployment",
			Meaning: "The origin names another replica set or cluster than the one that mongodb.uri leads to. Positions of one mean nothing in the other.",
			Remedy:  "Correct mongodb.uri, or give this deployment checkpoints of its own with another cluster.id. If it is the same data, restored or moved, accept it with `streamer cluster adopt --source`.",
		},
		{
			Code:    CheckpointUnreadable,
			Summary: "the store of checkpoints does not answer",
			Meaning: "Where the subscriber is could not be read, and it did not say so itself. Nothing was delivered.",
			Remedy:  "Connect again: clients do so by themselves. If it lasts, look at etcd, or at MongoDB where the checkpoints are there.",
		},
		{
			Code:    NodeAddressInUse,
			Summary: "the address to listen on is in use",
			Meaning: "Another process listens there already. Nothing was started and no checkpoint was touched.",
			Remedy:  "Stop the other process or set the key named, http.listen or grpc.listen, to a free address.",
		},
		{
			Code:    NodeDetached,
			Summary: "the node is cut off from its cluster",
			Meaning: "It could not renew its lease in time, because etcd did not answer or the machine stood still, and others may have taken its partitions. It hands nothing to anybody until it is a member again; nothing is lost.",
			Remedy:  "Connect to another node of the cluster with the positions reached. If all nodes say so, look at etcd.",
		},
		{
			Code:    NodeRunning,
			Summary: "another process owns these checkpoints",
			Meaning: "Two processes on the same checkpoints would deliver twice and keep deposing each other, so the second is refused. The first was not disturbed. It may be one of several that share the partitions of checkpoints in MongoDB; these are remembered when none of them runs.",
			Remedy:  "Stop the process named, give this one another cluster.id, or set cluster.expected_nodes as the others have it. A node that is to be alone can be started with --take-over, which ends the ownership of others at once; where nodes have shared the partitions of checkpoints in MongoDB, it must reach their etcd.",
		},
		{
			Code:    NodeStopping,
			Summary: "the node is stopping",
			Meaning: "It was told to stop and takes no more subscribers. Nothing was delivered on this connection, and nothing is lost.",
			Remedy:  "Connect to another node, or to this one when it runs again, with the id of the last event received.",
		},
		{
			Code:    NodeTermLost,
			Summary: "the node lost its partitions to another process",
			Meaning: "Another process took over, or this one stood still for longer than its lease lives; what it had not saved will be delivered again by the new owner.",
			Remedy:  "If nobody took over on purpose, look for long pauses of this machine or a broken connection to the checkpoint store.",
		},
		{
			Code:    NodeUnreachable,
			Summary: "no node answers at the address",
			Meaning: "Nothing listens there, or what listens is no node. Nothing was changed.",
			Remedy:  "Check --address (http.listen of the node's configuration), and that the node runs.",
		},
	}
}
