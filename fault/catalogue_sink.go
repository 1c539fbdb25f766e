package fault

// sinkEntries are what sinks and their targets meet, in the order of their codes.
func sinkEntries() []Entry {
	return []Entry{
		{
			Code:    SinkHalted,
			Summary: "a sink has halted, whole or in part",
			Meaning: "Its target refused a change as often as sinks.attempts allows, wants no further changes (HTTP 410), or refused a dead letter. The sink publishes nothing more, or nothing more to the topic or subject that the message names; its changes wait in the oplog, and it loses nothing while they are there. Other subscribers are not affected.",
			Remedy:  "Read the cause in the notice or in `streamer sinks status`. Correct the target, or set sinks.dead_letter to go past changes that it refuses, and then `streamer sinks resume NAME`, or restart the node.",
		},
		{
			Code:    SinkTarget,
			Summary: "the target of a sink cannot be reached or used",
			Meaning: "No connection could be made, the login was refused, or a certificate or a file cannot be used. In `streamer check`, it also means that a topic or a stream is missing, which a running node reports as STRM-SINK-WAITING. A running node retries and loses nothing while the oplog reaches back to the sink's checkpoint.",
			Remedy:  "Check the address, the credentials and the certificates below sinks, and that the topic, stream or folder exists.",
		},
		{
			Code:    SinkWaiting,
			Summary: "what a sink publishes to a destination waits",
			Meaning: "The target takes nothing for a topic or subject, whatever the change is: the topic, the stream or the right to write to it is missing, or the stream is full or its server cannot store it. Or it refused a change, and the dead letter could not be written, for example because the folder of its file is missing. What goes there waits in the oplog and is tried again every 10 s; nothing of it becomes a dead letter or is lost while the oplog has it. Other destinations get their changes, if the target has no order among them.",
			Remedy:  "Grant the right, create the topic, subject or folder that the message names, or make room in the stream; if it has room, read the log of the NATS server. The sink continues by itself; `streamer sinks resume NAME` tries at once.",
		},
	}
}
