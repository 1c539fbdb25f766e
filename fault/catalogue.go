package fault

//go:generate go test -run TestCodesAreDocumented -args -rewrite

// The codes, by subject.
const (
	ClusterChanged     Code = "STRM-CLUSTER-CHANGED"
	ClusterUnknown     Code = "STRM-CLUSTER-UNKNOWN"
	CommandUnconfirmed Code = "STRM-COMMAND-UNCONFIRMED"
	ConfigUnknownKey   Code = "STRM-CONFIG-UNKNOWN-KEY"
	ConfigBadValue     Code = "STRM-CONFIG-BAD-VALUE"
	ConfigConflict     Code = "STRM-CONFIG-CONFLICT"
	ConfigUnreadable   Code = "STRM-CONFIG-UNREADABLE"
	EtcdUnreachable    Code = "STRM-ETCD-UNREACHABLE"
	EtcdRefused        Code = "STRM-ETCD-REFUSED"
	FilterCost         Code = "STRM-FILTER-COST"
	FilterEvaluation   Code = "STRM-FILTER-EVALUATION"
	FilterInvalid      Code = "STRM-FILTER-INVALID"
	FilterNeedsBefore  Code = "STRM-FILTER-NEEDS-BEFORE"
	FilterNeedsDoc     Code = "STRM-FILTER-NEEDS-DOCUMENT"
	FilterTooLarge     Code = "STRM-FILTER-TOO-LARGE"
	LogAhead           Code = "STRM-LOG-AHEAD"
	LogHistoryLost     Code = "STRM-LOG-HISTORY-LOST"
	LogNoProgress      Code = "STRM-LOG-NO-PROGRESS"
	LogTokenRefused    Code = "STRM-LOG-TOKEN-REFUSED"
	LogPoisonEvent     Code = "STRM-LOG-POISON-EVENT"
	MarkNewer          Code = "STRM-MARK-NEWER"
	MarkCorrupt        Code = "STRM-MARK-CORRUPT"
	MarkPartitions     Code = "STRM-MARK-PARTITIONS"
	MarkRewind         Code = "STRM-MARK-REWIND"
	MarkSource         Code = "STRM-MARK-SOURCE"
	MongoUnreachable   Code = "STRM-MONGODB-UNREACHABLE"
	MongoStandalone    Code = "STRM-MONGODB-STANDALONE"
	MongoUnauthorized  Code = "STRM-MONGODB-UNAUTHORIZED"
	MongoRefused       Code = "STRM-MONGODB-REFUSED"
	NodeAddressInUse   Code = "STRM-NODE-ADDRESS-IN-USE"
	NodeRunning        Code = "STRM-NODE-RUNNING"
	NodeStopping       Code = "STRM-NODE-STOPPING"
	NodeTermLost       Code = "STRM-NODE-TERM-LOST"
	SessionBadAck      Code = "STRM-SESSION-BAD-ACK"
	SessionBadPosition Code = "STRM-SESSION-BAD-POSITION"
	SessionEncoding    Code = "STRM-SESSION-ENCODING"
	SessionReplaced    Code = "STRM-SESSION-REPLACED"
	SessionSilent      Code = "STRM-SESSION-SILENT"
	SessionBadRequest  Code = "STRM-SESSION-BAD-REQUEST"
	SessionStalled     Code = "STRM-SESSION-STALLED"
	SessionTooMany     Code = "STRM-SESSION-TOO-MANY"
)

//nolint:gochecknoglobals // the catalogue is a constant table
var catalogue = []Entry{
	{
		Code:    ClusterChanged,
		Summary: "somebody else changed the origin of the marks meanwhile",
		Meaning: "Two operators adopted the marks at the same time, or one between the look and the deed of the other. Nothing was written by the command.",
		Remedy:  "Look at what stands (`streamer checkpoint list`) and give the command again if it is still wanted.",
	},
	{
		Code:    ClusterUnknown,
		Summary: "there are no marks of this cluster",
		Meaning: "No node has ever started with this cluster.id at this store, or the configuration leads to another store or database. Nothing was written.",
		Remedy:  "Give the nodes' own configuration with -f, and check cluster.id, reliability.checkpoint.backend, and etcd.prefix or marks.database.",
	},
	{
		Code:    CommandUnconfirmed,
		Summary: "the command changes something and was not confirmed",
		Meaning: "It asks before it writes, and either the answer was no or there is no terminal to ask on. Nothing was written.",
		Remedy:  "Look at what it would do (rewind: --dry-run), then give it again with --yes.",
	},
	{
		Code:    ConfigBadValue,
		Summary: "a configuration value is out of its range or of the wrong form",
		Meaning: "The value was found in the file, line or environment variable named. Nothing was started and no mark was touched.",
		Remedy:  "Correct the value; config.yaml in the repository lists every key with its form and default. `streamer config check` tests a file.",
	},
	{
		Code:    ConfigConflict,
		Summary: "two configuration values contradict each other",
		Meaning: "Each value is fine alone, together they cannot work. Nothing was started and no mark was touched.",
		Remedy:  "Change one of the two keys named.",
	},
	{
		Code:    ConfigUnknownKey,
		Summary: "the configuration has a key that does not exist",
		Meaning: "Unknown keys are refused, because a misspelt key would silently leave its default in force. Nothing was started.",
		Remedy:  "Correct or remove the key at the line named; the nearest known key is suggested.",
	},
	{
		Code:    ConfigUnreadable,
		Summary: "the configuration cannot be read",
		Meaning: "The file is missing, not readable, or not YAML. Nothing was started.",
		Remedy:  "Check the path given with -f, the file's rights, and its syntax at the line named.",
	},
	{
		Code:    EtcdRefused,
		Summary: "etcd answered and refused the request",
		Meaning: "Authentication failed, a right is missing, a limit is exceeded, or the cluster has no quorum. Marks are as they were.",
		Remedy:  "Check etcd.username and the role's rights on etcd.prefix, and the health of the etcd cluster (etcdctl endpoint health).",
	},
	{
		Code:    EtcdUnreachable,
		Summary: "no etcd endpoint can be reached",
		Meaning: "None of etcd.endpoints answered within etcd.dial_timeout. Marks are as they were.",
		Remedy:  "Check etcd.endpoints, the network, and that etcd runs; or keep the marks in MongoDB with reliability.checkpoint.backend: mongo.",
	},
	{
		Code:    FilterCost,
		Summary: "a filter would take too long on an event",
		Meaning: "The evaluation was ended: the filter has comprehensions over large arrays, a large pattern on a long text, or walks a large document again and again. The event was not delivered to this subscription; others are not affected.",
		Remedy:  "Make the filter cheaper: put a comparison with == in front, avoid one comprehension inside another, and compare fields instead of whole documents.",
	},
	{
		Code:    FilterEvaluation,
		Summary: "a filter could not be evaluated on an event",
		Meaning: "The filter does with a field what the field's value does not allow, like comparing a string with a number. The event was not delivered to this subscription; whether it should have been, the filter cannot say.",
		Remedy:  "Make the filter ask first: has(doc.a) for a field that may be missing, type(doc.a) == string for one of several types. docs/filters.md has the table of types.",
	},
	{
		Code:    FilterInvalid,
		Summary: "the filter is not an expression that can be used",
		Meaning: "It cannot be parsed, names something that there is not, compares types that never compare, or is nested too deep. The text says where and why. Nothing was subscribed.",
		Remedy:  "Correct the expression at the place that is named; docs/filters.md lists variables, functions and limits.",
	},
	{
		Code:    FilterNeedsBefore,
		Summary: "the filter reads the image before the change, and the stream carries none",
		Meaning: "The node does not ask MongoDB for the images before changes. The filter would never match, so it is refused.",
		Remedy:  "Leave `before` (or deletes: before) out, limit the filter to inserts, or have the operator turn on images before changes.",
	},
	{
		Code:    FilterNeedsDoc,
		Summary: "the filter reads the document, and updates come without it",
		Meaning: "With mongodb.full_document: default an update tells only what it changed. The filter would never match an update, so it is refused.",
		Remedy:  "Limit the filter to other operations (op != \"update\"), read update.updatedFields instead, or have the operator set mongodb.full_document to updateLookup or whenAvailable.",
	},
	{
		Code:    FilterTooLarge,
		Summary: "the filter is too long",
		Meaning: "A filter has at most 4096 bytes. Nothing was subscribed.",
		Remedy:  "Split it into several subscriptions: an event that matches more than one still comes once.",
	},
	{
		Code:    LogAhead,
		Summary: "a position is younger than MongoDB's own time",
		Meaning: "The deployment was restored from a backup, or is another one: the position is of a log that is no more. The partition was stopped; its mark was left where it was.",
		Remedy:  "If MongoDB was restored, run `streamer cluster adopt`, which moves such marks back and tells the subscribers; otherwise correct mongodb.uri.",
	},
	{
		Code:    LogHistoryLost,
		Summary: "the oplog no longer reaches back to the position to resume at",
		Meaning: "Changes between the position and the oplog's first entry can no longer be read from the log. The mark was left where it was.",
		Remedy:  "Read the documents that the lost span may have touched again; let the oplog be larger than the longest outage you plan for (replSetResizeOplog). With on_history_lost: halt, delete or rewind the mark to go on.",
	},
	{
		Code:    LogNoProgress,
		Summary: "a partition was recovered several times without getting on",
		Meaning: "Each time the log was read again the same trouble came back. The partition was stopped, so that it does not spin; its mark was left where it was.",
		Remedy:  "Look at the gap log (`streamer gaps`) and at MongoDB's own log for the reason; restart the node to try again.",
	},
	{
		Code:    LogPoisonEvent,
		Summary: "a change event is larger than MongoDB can deliver",
		Meaning: "A change event above 16 MiB stops every change stream that meets it (BSONObjectTooLarge).",
		Remedy:  "Use MongoDB 6.0.9 or later, where large events are split; keep documents below 8 MiB, or do not ask for full documents.",
	},
	{
		Code:    LogTokenRefused,
		Summary: "MongoDB refused a resume token as malformed",
		Meaning: "The mark's token is not one that this server can read: another server product, or a corrupted mark. The mark was left as it was.",
		Remedy:  "Check that mongodb.uri leads to the deployment that the marks were made with.",
	},
	{
		Code:    MarkCorrupt,
		Summary: "a mark cannot be read",
		Meaning: "The stored mark is damaged or was written by something else. It was left as it was.",
		Remedy:  "Look at the mark's key or document named; restore it from a backup, or delete it to let its partition start again from the origin.",
	},
	{
		Code:    MarkNewer,
		Summary: "a mark was written by a newer version",
		Meaning: "This version does not know the mark's format and would lose what it holds. It was left as it was.",
		Remedy:  "Run the version that wrote the mark, or a later one.",
	},
	{
		Code:    MarkPartitions,
		Summary: "the marks were made for another number of partitions",
		Meaning: "A document's partition depends on cluster.partitions; with another number the marks would not fit the documents. They were left as they were.",
		Remedy:  "Set cluster.partitions to the number named.",
	},
	{
		Code:    MarkRewind,
		Summary: "a mark cannot be rewound to this position",
		Meaning: "A rewind moves a mark back, never forward, because what is between would be lost in silence; and the oplog must still hold what is to be read again. The mark was left where it was.",
		Remedy:  "Choose a position before the mark and behind the oplog's oldest entry; `streamer checkpoint rewind --dry-run` shows both.",
	},
	{
		Code:    MarkSource,
		Summary: "the marks were made with another MongoDB deployment",
		Meaning: "The origin names another replica set or cluster than the one that mongodb.uri leads to. Positions of one mean nothing in the other.",
		Remedy:  "Correct mongodb.uri, or give this deployment marks of its own with another cluster.id. If it is the same data, restored or moved, accept it with `streamer cluster adopt --source`.",
	},
	{
		Code:    MongoRefused,
		Summary: "MongoDB answered and refused the request",
		Meaning: "The server's own error code stands in the message.",
		Remedy:  "Look the server's error code up in the MongoDB manual; check that the deployment is MongoDB 4.2 or later.",
	},
	{
		Code:    MongoStandalone,
		Summary: "the MongoDB server is not part of a replica set",
		Meaning: "Change streams read the oplog, which only replica sets and sharded clusters have.",
		Remedy:  "Start mongod with --replSet and run rs.initiate() once; a replica set of one member is enough.",
	},
	{
		Code:    MongoUnauthorized,
		Summary: "the MongoDB user lacks a right or cannot authenticate",
		Meaning: "The server refused the user's credentials or the action named.",
		Remedy:  "Check the user in mongodb.uri; it needs changeStream and find on what mongodb.watch names (readAnyDatabase covers all), and read on local.",
	},
	{
		Code:    MongoUnreachable,
		Summary: "no MongoDB server can be reached",
		Meaning: "No member of the deployment answered in time, or none is primary.",
		Remedy:  "Check mongodb.uri (hosts, replicaSet, tls), the network, and that the deployment has a primary (rs.status()).",
	},
	{
		Code:    NodeAddressInUse,
		Summary: "the address to listen on is in use",
		Meaning: "Another process listens there already. Nothing was started and no mark was touched.",
		Remedy:  "Stop the other process or set http.listen to a free address.",
	},
	{
		Code:    NodeRunning,
		Summary: "another process owns these marks",
		Meaning: "Two processes on the same marks would deliver twice and deposed each other for ever, so the second is refused. The first was not disturbed.",
		Remedy:  "Stop the process named, give this one another cluster.id, or start it with --take-over, which ends the other's ownership at once.",
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
		Meaning: "The lease ended or another process took over; what this node had not marked will be delivered again by the new owner.",
		Remedy:  "If nobody took over on purpose, look for long pauses of this machine or a broken connection to the mark store.",
	},
	{
		Code:    SessionBadAck,
		Summary: "a gateway acknowledged what it was never sent",
		Meaning: "The session was ended: a mark must not pass what nobody has had. What the gateway did not acknowledge comes again.",
		Remedy:  "Acknowledge only positions that batches of the same session ended with.",
	},
	{
		Code:    SessionBadPosition,
		Summary: "the position to resume at is malformed or belongs to another cluster",
		Meaning: "Last-Event-ID must be an id that this cluster sent. Nothing was delivered.",
		Remedy:  "Reconnect with the id of the last event received, or without one to start from now.",
	},
	{
		Code:    SessionBadRequest,
		Summary: "the subscription request cannot be understood",
		Meaning: "A parameter is unknown or has a value of the wrong form. Nothing was delivered.",
		Remedy:  "Correct the parameter named.",
	},
	{
		Code:    SessionEncoding,
		Summary: "a change cannot be written in the form that a subscription asks for",
		Meaning: "The subscription was told; the other subscriptions got the change.",
		Remedy:  "Subscribe in another format, and read the document that the notice names.",
	},
	{
		Code:    SessionReplaced,
		Summary: "another process has connected under the gateway's id",
		Meaning: "Of two processes with one id the one that started later is served. Nothing is lost: it goes on from the positions that it gave.",
		Remedy:  "Give every gateway an id of its own. After a restart this is the old process being let go, and nothing is to be done.",
	},
	{
		Code:    SessionSilent,
		Summary: "nothing came from a gateway for longer than the heartbeat timeout",
		Meaning: "The session was ended. What the gateway did not acknowledge comes again when it is back.",
		Remedy:  "Send heartbeats as often as the welcome says; look for a blocked process or a broken connection.",
	},
	{
		Code:    SessionStalled,
		Summary: "the subscriber did not keep up and was cut off",
		Meaning: "Its connection took nothing for longer than the limit. Nothing is lost: the log keeps what it has not seen.",
		Remedy:  "Reconnect with the id of the last event received; read faster or narrow the filter.",
	},
	{
		Code:    SessionTooMany,
		Summary: "the node serves as many subscribers as it may",
		Meaning: "http.max_clients bounds the connections of one node. The others are not affected.",
		Remedy:  "Connect to another node, or raise http.max_clients.",
	},
}
