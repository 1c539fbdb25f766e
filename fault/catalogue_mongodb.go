package fault

// mongodbEntries are the faults of MongoDB and its log, in the order of their codes.
func mongodbEntries() []Entry {
	return []Entry{
		{
			Code:    LogAhead,
			Summary: "a position is later than MongoDB's own time",
			Meaning: "The deployment was restored from a backup, or is another one: the position belongs to an oplog that no longer exists. The partition was stopped; its checkpoint was not changed.",
			Remedy:  "If MongoDB was restored, run `streamer cluster adopt`, which moves such checkpoints back and notifies the subscribers; otherwise correct mongodb.uri.",
		},
		{
			Code:    LogHidden,
			Summary: "the oplog cannot be inspected",
			Meaning: "Through mongos, or without the right to read local, it is unknown how far the oplog reaches back: head-room is unknown, and a lost position is noticed only when a stream is opened at it. start_from, and the start of a sink, cannot be the oldest change.",
			Remedy:  "On a replica set grant the user read on local. With mongos inspect the shards' own oplogs (rs.printReplicationInfo()), and give a time to begin at.",
		},
		{
			Code:    LogHistoryLost,
			Summary: "the oplog no longer reaches back to the position to resume at",
			Meaning: "Changes between the position and the oplog's first entry can no longer be read. The checkpoint was not changed.",
			Remedy:  "Read again the documents that may have changed in the lost span. Make the oplog longer than the longest outage you plan for (replSetResizeOplog). With on_history_lost: halt, set resync until the subscriber has acknowledged the loss; an exclusive subscriber can also start again, after `streamer subscribers delete NAME`.",
		},
		{
			Code:    LogPoisonEvent,
			Summary: "a change event is larger than MongoDB can deliver",
			Meaning: "A change event above 16 MiB stops every change stream that meets it (BSONObjectTooLarge).",
			Remedy:  "Use MongoDB 6.0.9 or later, where large events are split; keep documents below 8 MiB, or do not ask for full documents.",
		},
		{
			Code:    LogShort,
			Summary: "the oplog is shorter than the outage that must be survived",
			Meaning: "A node that is down for longer than the oplog reaches back loses changes, and its subscribers must read documents again.",
			Remedy:  "Enlarge the oplog (replSetResizeOplog: size, or minRetentionHours), on every member.",
		},
		{
			Code:    LogTokenRefused,
			Summary: "MongoDB refused a resume token as malformed",
			Meaning: "The checkpoint's token is not one that this server can read: another server product, or a corrupted checkpoint. The checkpoint was left as it was.",
			Remedy:  "Check that mongodb.uri leads to the deployment that the checkpoints were made with.",
		},
		{
			Code:    MongoCertificate,
			Summary: "a certificate is not accepted between the node and MongoDB",
			Meaning: "The message says which side refused and why: a certificate has expired, is for another name or from an unknown authority, or one side does not speak TLS. No server was reached.",
			Remedy:  "Renew the certificate in the message, or correct tls, tlsCAFile and tlsCertificateKeyFile in mongodb.uri. A server's certificate must name the host as mongodb.uri and rs.conf() have it. A running node takes new files of mongodb.uri within 10 s of a change.",
		},
		{
			Code:    MongoConnections,
			Summary: "MongoDB has few connections left",
			Meaning: "Each change stream holds a connection while it waits. If none is left, catch-up streams and checkpoints wait.",
			Remedy:  "Raise MongoDB's net.maxIncomingConnections, or lower mongodb.max_streams.",
		},
		{
			Code:    MongoCredentials,
			Summary: "MongoDB does not accept the user's credentials",
			Meaning: "The user is unknown, the password is wrong or was changed, or the mechanism or the database of the user is another one. Connections that are open already stay open.",
			Remedy:  "Check the user, the password (percent-encoded), authSource and authMechanism in mongodb.uri. After a change of the password write it into the file of mongodb.uri_file: a running node takes it within 10 s.",
		},
		{
			Code:    MongoExposed,
			Summary: "the connection to MongoDB is not protected",
			Meaning: "MongoDB is on another machine, and the connection string has no TLS, does not verify certificates, or has no credentials. An attacker on the network can see every change, and forge changes.",
			Remedy:  "Add tls=true to mongodb.uri (tlsCAFile=… for a private authority), remove tlsInsecure, and use a user who has only the roles in README.md.",
		},
		{
			Code:    MongoImages,
			Summary: "pre- or post-images are requested that MongoDB does not keep",
			Meaning: "With mongodb.full_document or mongodb.full_document_before_change: whenAvailable or required the collection must keep pre- and post-images. If it does not, changes come without those documents; with required, MongoDB refuses to continue at such a change.",
			Remedy:  "Turn them on for the named collections: db.runCommand({collMod: \"name\", changeStreamPreAndPostImages: {enabled: true}}) (MongoDB 6.0); or set mongodb.full_document to updateLookup, mongodb.full_document_before_change to off.",
		},
		{
			Code:    MongoMajority,
			Summary: "a majority of the replica set lags behind",
			Meaning: "Change streams deliver only changes that a majority has: until it has caught up, nothing is delivered.",
			Remedy:  "Check rs.status() for members that are down or lag. A set of primary, secondary and arbiter has no data majority if one of the first two is down.",
		},
		{
			Code:    MongoMissing,
			Summary: "there is no collection of that name yet",
			Meaning: "A subscription, a sink or mongodb.watch names a collection or a database that does not exist. Nothing comes of it until somebody writes there.",
			Remedy:  "Check the spelling, upper and lower case included. If it is right, nothing needs to be done.",
		},
		{
			Code:    MongoOption,
			Summary: "an option of the connection string does not do what it says",
			Meaning: "The node sets it itself, because the reading of the log depends on it, or it leaves out a part that a cluster needs. The message names the options and their replacements; nothing else is affected.",
			Remedy:  "Remove the option from mongodb.uri. docs/reference/connection-string.md lists the effect of each option.",
		},
		{
			Code:    MongoRefused,
			Summary: "MongoDB answered and refused the request",
			Meaning: "The message contains the server's own error code.",
			Remedy:  "Look up the server's error code in the MongoDB manual; check that the deployment is MongoDB 4.2 or later.",
		},
		{
			Code:    MongoReplicaSet,
			Summary: "the servers are not members of the replica set in mongodb.uri",
			Meaning: "They answered, and belong to another set or are routers. The driver leaves them out, so no server is left.",
			Remedy:  "Correct replicaSet in mongodb.uri, or leave it out for routers (mongos). If the hosts are wrong, correct them.",
		},
		{
			Code:    MongoResume,
			Summary: "change streams cannot be resumed reliably",
			Meaning: "The server gives no post-batch resume token or refuses startAfter, so a quiet partition's position would grow old, and a stream could not continue after an invalidate event.",
			Remedy:  "Use MongoDB 4.2 or later; other products with MongoDB's protocol often lack this.",
		},
		{
			Code:    MongoShards,
			Summary: "changes of a sharded cluster arrive late",
			Meaning: "mongos holds a change until every other shard, and the config servers, have reported a later time. A shard without writes reports a newer time every 10 s only (periodicNoopIntervalSecs), so a change may arrive 10 s late. Nothing is lost or out of order. With mongodb.tick the node has a no-op written to the shards that others wait for.",
			Remedy:  "Set mongodb.tick, for example to 200ms. It needs mongos 4.2.23, 4.4.17, 5.0.12 or 6.0, and a user with the action appendOplogNote on the resource {cluster: true} (it is in the role backup) and find on config.version. Or set periodicNoopIntervalSecs to 1 on the shards.",
		},
		{
			Code:    MongoSplit,
			Summary: "MongoDB does not split large change events",
			Meaning: "A change event above 16 MiB is delivered with fewer fields and incomplete: true. If not even its key fits, it is left out together with the rest of its transaction, and subscribers get a notice.",
			Remedy:  "Use MongoDB 6.0.9 or later, or keep documents below 8 MiB.",
		},
		{
			Code:    MongoStandalone,
			Summary: "the MongoDB server is not part of a replica set",
			Meaning: "Change streams read the oplog, which only replica sets and sharded clusters have.",
			Remedy:  "Start mongod with --replSet and run rs.initiate() once; a replica set of one member is enough.",
		},
		{
			Code:    MongoUnauthorized,
			Summary: "the MongoDB user lacks a right",
			Meaning: "The server refused the action in the message, because no role of the user allows it there. A running node that loses the right to read the log ends.",
			Remedy:  "Grant the user what docs/security.md lists: changeStream and find on the namespaces in mongodb.watch (readAnyDatabase covers all), read on local, and readWrite on reliability.checkpoint.database where checkpoints are in MongoDB.",
		},
		{
			Code:    MongoUnreachable,
			Summary: "no MongoDB server can be reached",
			Meaning: "No member of the deployment answered in time, or none is primary.",
			Remedy:  "Check mongodb.uri (hosts, replicaSet, tls), the network, and that the deployment has a primary (rs.status()).",
		},
		{
			Code:    MongoVersion,
			Summary: "the version of MongoDB is not supported, or no longer maintained",
			Meaning: "The node needs change streams over a deployment with post-batch resume tokens and startAfter (4.2). Versions that MongoDB no longer maintains get no fixes.",
			Remedy:  "Use MongoDB 4.2 or later, preferably a maintained version.",
		},
	}
}
