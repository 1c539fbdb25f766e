package fault

// sinkEntries are what sinks and their targets meet, in the order of their codes.
func sinkEntries() []Entry {
	return []Entry{
		{
			Code:    SinkHalted,
			Summary: "a sink has halted, whole or in part",
			Meaning: "Its target refused a change, or all changes for a topic or subject, as often as sinks.attempts allows, wants no further changes (HTTP 410), or a dead letter could not be written. The sink publishes nothing more, or nothing more to the topic or subject that the message names; its changes wait in the oplog, and it loses nothing while they are there. Other subscribers are not affected.",
			Remedy:  "Read the cause in the notice or in `streamer sinks status`. Correct the target, or set sinks.dead_letter to go past changes that it refuses, and then `streamer sinks resume NAME`, or restart the node. A missing topic, subject or right is noticed within 10 s of its return, without a command.",
		},
		{
			Code:    SinkTarget,
			Summary: "the target of a sink cannot be reached or used",
			Meaning: "No connection could be made, the login was refused, a certificate or a file cannot be read, or a topic, stream or file is missing. A running node retries and loses nothing while the oplog reaches back to the sink's checkpoint.",
			Remedy:  "Check the address, the credentials and the certificates below sinks, and that the topic, stream or folder exists.",
		},
	}
}
