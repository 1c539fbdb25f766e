package fault

// gatewayEntries are what gateways and their subscribers meet, in the order of their codes.
func gatewayEntries() []Entry {
	return []Entry{
		{
			Code:    AccessBadCertificate,
			Summary: "a certificate, its key, or the clients' authorities cannot be used",
			Meaning: "A file is missing, is not PEM, does not fit the others, or the certificate is not valid at this time. At the start nothing was started; later, what was in force before stays in force.",
			Remedy:  "Put files in order that belong together (the chain with the leaf first, its key, authorities as PEM). A running node reads them again by itself.",
		},
		{
			Code:    AccessBadFile,
			Summary: "the file of identities or the key set cannot be used",
			Meaning: "A file is missing or a line or key of it is wrong; the text says which. At the start nothing was started; later, what was in force before stays in force, revoked tokens too.",
			Remedy:  "Correct the line or key named; docs/access.md has the form. A running node reads the file again by itself.",
		},
		{
			Code:    AccessExpires,
			Summary: "a certificate expires soon",
			Meaning: "It is good now. Once it has expired nobody who looks at it connects any more; what is connected then goes on.",
			Remedy:  "Put a new certificate and its key in the place of the files before that day. A running node reads them again by itself.",
		},
		{
			Code:    AccessForbidden,
			Summary: "the identity may not do this",
			Meaning: "Who is at the other end is known, and what was asked for is not among what that one may do. Nothing was subscribed.",
			Remedy:  "Ask for what is allowed, naming db and coll, or have the operator add the namespace to the identity (docs/access.md) or the origin to the list of origins.",
		},
		{
			Code:    AccessLimit,
			Summary: "the identity has as many subscriptions as it may",
			Meaning: "max_subscriptions bounds the subscriptions of all connections of one identity to a node. Those that there are go on.",
			Remedy:  "End subscriptions that are not needed, put several filters into one, or have the operator raise max_subscriptions of the identity.",
		},
		{
			Code:    AccessPlaintext,
			Summary: "the node would listen for other machines without TLS",
			Meaning: "Events and tokens could be read on the way. Nothing was started.",
			Remedy:  "Configure a certificate (http.tls, grpc.tls), listen on 127.0.0.1, or say that plaintext is wanted (http.insecure, grpc.insecure), where a proxy before the node speaks TLS.",
		},
		{
			Code:    AccessTokenExposed,
			Summary: "a token came over a connection that others can read",
			Meaning: "It was sent without TLS from another machine. It was not looked at; whoever could listen on the way has it.",
			Remedy:  "Replace the token. Connect over TLS, or let what speaks TLS before the node run on the node's own machine.",
		},
		{
			Code:    AccessUnauthenticated,
			Summary: "the node does not know who is there",
			Meaning: "No token or certificate was shown, or it is forged, expired, revoked, made for somebody else, or its rights have changed since it connected. Nothing was delivered after that; no position is lost.",
			Remedy:  "Send `authorization: Bearer` with a token that is good now, or connect with a client certificate whose subject is listed; then resume. docs/access.md says what is taken.",
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
			Summary: "the filter is too long",
			Meaning: "A filter has at most 4096 bytes. Nothing was subscribed.",
			Remedy:  "Split it into several subscriptions: an event that matches more than one still comes once.",
		},
		{
			Code:    SessionBadAck,
			Summary: "a subscriber acknowledged a batch that it was never sent",
			Meaning: "The session was ended: a checkpoint must not pass what nobody has had. What the subscriber did not acknowledge is redelivered.",
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
			Code:    SessionTooLarge,
			Summary: "a message to the node is too large",
			Meaning: "A gateway's message has at most 4 MiB. The session was ended, because the message was not read; what was not acknowledged comes again.",
			Remedy:  "Send fewer subscriptions with the hello and the others in Subscribe messages behind it; acknowledge in several messages.",
		},
		{
			Code:    SessionTooMany,
			Summary: "the node serves as many subscribers as it may",
			Meaning: "http.max_clients bounds the event streams of one node, gateway.max_sessions its gateways. The others are not affected.",
			Remedy:  "Connect to another node, or raise http.max_clients or gateway.max_sessions.",
		},
		{
			Code:    SessionTooWide,
			Summary: "a session has more subscriptions than it may",
			Meaning: "gateway.max_subscriptions bounds the subscriptions of one session. The session was ended; other sessions are not affected.",
			Remedy:  "Put several filters into one, spread subscriptions over several gateways, or raise gateway.max_subscriptions.",
		},
		{
			Code:    SessionUnknown,
			Summary: "nothing is known of where the subscriber is",
			Meaning: "It wants to resume, but gave no position, and has no checkpoint under its name. Nothing was delivered.",
			Remedy:  "Read the documents that it needs, and connect with a start: now, earliest or a time. If it had a checkpoint, check its name and the cluster.",
		},
	}
}
