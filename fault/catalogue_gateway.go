package fault

// gatewayEntries are what gateways and their subscribers meet, in the order of their codes.
func gatewayEntries() []Entry {
	return []Entry{
		{
			Code:    AccessBadCertificate,
			Summary: "a certificate, its key, or the client CA cannot be used",
			Meaning: "A file is missing, is not PEM, or does not match the others, or the certificate is not valid now. A starting node does not start. A running node keeps the previous files in force.",
			Remedy:  "Provide matching PEM files: the certificate chain with the leaf first, its key, and the CA certificates. A running node reloads them automatically.",
		},
		{
			Code:    AccessBadFile,
			Summary: "the file of identities or the key set cannot be used",
			Meaning: "A file is missing, or a line or key in it is invalid; the message says which. A starting node does not start. A running node keeps the previous contents in force, including revoked tokens.",
			Remedy:  "Correct the line or key in the message; docs/access.md describes the format. A running node reloads the file automatically.",
		},
		{
			Code:    AccessExpires,
			Summary: "a certificate expires soon",
			Meaning: "It is valid now. After it expires, clients that verify it cannot connect; existing connections continue.",
			Remedy:  "Replace the files with a new certificate and its key before that day. A running node reloads them automatically.",
		},
		{
			Code:    AccessForbidden,
			Summary: "the identity lacks this permission",
			Meaning: "The client is authenticated, but not authorized for this request, or the subscriber's checkpoint was made by another identity. Nothing was subscribed.",
			Remedy:  "Subscribe to an allowed namespace, with db and coll, or ask the operator to add the namespace to the identity (docs/access.md) or the origin to http.cors_origins. If the text names a subscriber, the operator deletes its checkpoint or imports it for the identity.",
		},
		{
			Code:    AccessForeign,
			Summary: "a web page of another site sent the request, or it is for another host",
			Meaning: "Browsers send requests for every page that they show, also to a server on the same machine. The request names a host that is not this server, or comes from a browser to a name that others can register (DNS rebinding), comes from a page that has no leave, or asks for an event stream with a name and does not say which page asks. Nothing was served.",
			Remedy:  "Connect to localhost, to 127.0.0.1 or another IP address, or to the host of the listen key. For a page, or for a proxy that passes on its own Host, add its origin to http.cors_origins.",
		},
		{
			Code:    AccessLimit,
			Summary: "the identity has reached one of its limits",
			Meaning: "The message names the limit: of sessions, connections, streams of notices, subscriptions the memory of their filters (gateway.max_filter_bytes), or subscribers with checkpoints (1000), or of what is begun in a second, over all connections of one identity to a node. What it has open continues.",
			Remedy:  "End what is not needed, combine or shorten filters or use the same one several times, use the same subscriber's name again after a restart, or try again later. The operator can raise the identity's limits (docs/access.md), access.share, access.starts_per_second or gateway.max_filter_bytes, and delete subscribers that are gone (streamer subscribers delete).",
		},
		{
			Code:    AccessOpen,
			Summary: "anyone who can connect can read everything",
			Meaning: "A server is reachable from other machines and asks nobody for credentials. A node starts; every client that reaches the port may subscribe to every namespace, without limits.",
			Remedy:  "List identities with their namespaces and limits (access.identities_file, docs/access.md), accept JWTs (access.jwks_file), or listen on 127.0.0.1.",
		},
		{
			Code:    AccessPlaintext,
			Summary: "the node would accept connections from other machines without TLS",
			Meaning: "Events can be read and changed on the network. A node starts only with http.insecure or grpc.insecure, and takes no tokens there.",
			Remedy:  "Configure a certificate (http.tls, grpc.tls), listen on 127.0.0.1, or allow plaintext (http.insecure, grpc.insecure) if a proxy in front of the node terminates TLS and nobody else reaches the port.",
		},
		{
			Code:    AccessTokenExposed,
			Summary: "a token was sent over an unencrypted connection",
			Meaning: "It came without TLS from another machine. The node ignored it, but others on the network may have read it.",
			Remedy:  "Replace the token. Connect over TLS, or let what speaks TLS before the node run on the node's own machine.",
		},
		{
			Code:    AccessUnauthenticated,
			Summary: "the node does not know who is there",
			Meaning: "No token or certificate was shown, or it is forged, expired, revoked, made for somebody else, or its rights have changed since it connected. Nothing was delivered after that; no position is lost.",
			Remedy:  "Send `authorization: Bearer` with a token that is good now, or connect with a client certificate whose subject is listed; then resume. docs/access.md says what is taken.",
		},
		{
			Code:    AccessUnlimited,
			Summary: "an identity has no limits",
			Meaning: "It has no max_subscriptions, or neither events_per_second nor bytes_per_second. One such client can use up the memory, the CPU or the network of the node, to the harm of all others.",
			Remedy:  "Give every line of the file of identities max_subscriptions, and events_per_second or bytes_per_second (docs/access.md).",
		},
		{
			Code:    FilterCost,
			Summary: "a filter would take too long on an event",
			Meaning: "The evaluation was ended: the filter has comprehensions over large arrays, a large pattern on a long text, or walks a large document again and again. The event was not delivered to this subscription; others are not affected.",
			Remedy:  "Make the filter cheaper: put a comparison with == in front, avoid one comprehension inside another, and compare fields instead of whole documents.",
		},
		{
			Code:    FilterDoubtful,
			Summary: "the filter is never true, or not when it seems to be",
			Meaning: "The filter asks for operations that are not selected or do not exist, or for a field within a field of update.updatedFields, whose names are paths. It is accepted.",
			Remedy:  "Correct the filter. changed(\"total.net\") tells whether an update may have changed a field; docs/filters.md has examples.",
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
			Remedy:  "Leave `before` (or deletes: before) out, limit the filter to inserts, or have the operator set mongodb.full_document_before_change to whenAvailable.",
		},
		{
			Code:    FilterNeedsDoc,
			Summary: "the filter reads the document, and updates come without it",
			Meaning: "With mongodb.full_document: default an update tells only what it changed. The filter would never match an update, so it is refused.",
			Remedy:  "Limit the filter to other operations (op != \"update\"), read update.updatedFields instead, or have the operator set mongodb.full_document to updateLookup or whenAvailable.",
		},
		{
			Code:    FilterTooLarge,
			Summary: "the filter is too long, or would take too much memory",
			Meaning: "A filter has at most 4096 bytes and takes at most 1 MiB of memory. Nothing was subscribed.",
			Remedy:  "Split it into several subscriptions: an event that matches more than one still comes once.",
		},
		{
			Code:    SessionBadAck,
			Summary: "a subscriber acknowledged a batch that was never sent to it",
			Meaning: "The session was closed, because a checkpoint must not pass undelivered events. What the subscriber did not acknowledge is redelivered.",
			Remedy:  "Acknowledge only the numbers of batches of the same session.",
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
			Meaning: "A parameter is unknown or has an invalid value. Nothing was delivered.",
			Remedy:  "Correct the parameter in the message.",
		},
		{
			Code:    SessionEncoding,
			Summary: "a change cannot be encoded in the format of a subscription",
			Meaning: "The subscription got a notice instead; other subscriptions got the change.",
			Remedy:  "Subscribe with another format, and read the document that the notice names.",
		},
		{
			Code:    SessionFilterCostly,
			Summary: "a filter costs too much on event after event and is suspended",
			Meaning: "Single evaluations of the filter took more than 1 ms, and together more than 2 s within about a minute. The session was closed at its last position; nothing is lost, and other identities are not affected. The node refuses the same filter from the same identity for 5 minutes.",
			Remedy:  "Make the filter cheaper before you connect again: put a comparison with == in front, name db and coll, and avoid one macro inside another. Then resume at the last position.",
		},
		{
			Code:    SessionReplaced,
			Summary: "another process has connected with the same subscriber name",
			Meaning: "Of two processes with one name, the one that started later is served; the text names it. Nothing is lost: it continues from the positions that it sent.",
			Remedy:  "Give every gateway its own name. After a restart of a gateway this concerns its old process only, and no action is needed.",
		},
		{
			Code:    SessionSilent,
			Summary: "a gateway was silent for longer than the heartbeat timeout",
			Meaning: "The session was closed. What the gateway did not acknowledge is redelivered when it reconnects.",
			Remedy:  "Send heartbeats at the interval in the Welcome message; look for a blocked process or a broken connection.",
		},
		{
			Code:    SessionStalled,
			Summary: "the subscriber did not keep up and was disconnected",
			Meaning: "It took nothing of what it was sent for longer than http.stall_timeout or grpc.stall_timeout. Nothing is lost: it can continue from its last position.",
			Remedy:  "Reconnect at the position of the last event received; read faster or narrow the filter.",
		},
		{
			Code:    SessionTooLarge,
			Summary: "a message to the node is too large",
			Meaning: "A gateway's message may have at most 4 MiB. The session was closed, because the message was not read; what was not acknowledged is redelivered.",
			Remedy:  "Send fewer subscriptions in the Hello message and the others in Subscribe messages after it.",
		},
		{
			Code:    SessionTooMany,
			Summary: "the node has reached its limit of subscribers",
			Meaning: "http.max_clients bounds the event streams of one node, gateway.max_sessions its gateways. The others are not affected.",
			Remedy:  "Connect to another node, or raise http.max_clients or gateway.max_sessions.",
		},
		{
			Code:    SessionTooWide,
			Summary: "a session has too many subscriptions",
			Meaning: "gateway.max_subscriptions limits the subscriptions of one session, and the checkpoint of a subscriber what is kept of its snapshots: of some 1,700 subscriptions. The session was closed; other sessions are not affected.",
			Remedy:  "Combine several filters into one, spread subscriptions over several gateways with names of their own, ask for fewer snapshots, or raise gateway.max_subscriptions.",
		},
		{
			Code:    SessionUnacknowledged,
			Summary: "a subscriber acknowledges nothing of what it has been sent",
			Meaning: "It acknowledged nothing for gateway.ack_timeout although it had received events, or attached partitions again and again. The session was closed. What was not acknowledged is redelivered.",
			Remedy:  "Acknowledge each batch when it has been handled; look for a blocked handler. Raise gateway.ack_timeout if a single batch may take that long.",
		},
		{
			Code:    SessionUnknown,
			Summary: "the subscriber has no position to resume from",
			Meaning: "It asked to resume, but sent no position, and there is no checkpoint under its name. Nothing was delivered.",
			Remedy:  "Read the documents that it needs, and connect with a start: now, earliest or a time. If it had a checkpoint, check its name and the cluster.",
		},
		{
			Code:    SessionUnwatched,
			Summary: "the node reads nothing of what is asked for",
			Meaning: "The node reads what mongodb.watch and mongodb.operations list, and never admin, config, local, collections of MongoDB's own (system.…), or the database of the checkpoints; views and time series have no changes. Nothing would ever come, so nothing was subscribed or read. A sink that asks for it is refused at the start, or halted if it names a view or a time series.",
			Remedy:  "Correct db, coll and op; name the collection that a view shows; or have the operator add the namespace to mongodb.watch, or the operation to mongodb.operations, of all nodes.",
		},
	}
}
