package fault

// configEntries are the faults of configuration and of commands, in the order of their codes.
func configEntries() []Entry {
	return []Entry{
		{
			Code:    ClockSkew,
			Summary: "this machine's clock and MongoDB's differ",
			Meaning: "No decision depends on it: positions carry the server's time, and ages are measured with one clock. But times in logs and tables do not match.",
			Remedy:  "Synchronize the clocks of all machines (chrony, ntpd).",
		},
		{
			Code:    CommandBadArgument,
			Summary: "an argument or flag of the command is invalid",
			Meaning: "The message names it, and the expected form. Nothing was written.",
			Remedy:  "Correct the argument. The command with --help lists its arguments and flags.",
		},
		{
			Code:    CommandUnconfirmed,
			Summary: "the command changes something and was not confirmed",
			Meaning: "It asks before it writes, and either the answer was no or there is no terminal. Nothing was written.",
			Remedy:  "Run it again with --yes. For commands that move checkpoints, --dry-run shows their effect.",
		},
		{
			Code:    ConfigBadValue,
			Summary: "a configuration value is invalid or out of range",
			Meaning: "The message names the file and line, or the environment variable. Nothing was started and no checkpoint was touched.",
			Remedy:  "Correct the value. Every key with its form and default: https://github.com/mongostream/streamer/blob/main/docs/reference/configuration.md. `streamer config show` says what is in force, `streamer config check` tests a file.",
		},
		{
			Code:    ConfigConflict,
			Summary: "two configuration values conflict",
			Meaning: "Each value is valid, but they cannot be used together. Nothing was started and no checkpoint was touched.",
			Remedy:  "Change one of the two keys in the message.",
		},
		{
			Code:    ConfigExposed,
			Summary: "every user of the machine may read a file with a secret",
			Meaning: "The file has a password, a signing key or a private key, and its mode lets everybody read it.",
			Remedy:  "chmod 0640 (or 0400) and chown the file so that only the node's user reads it. If others have accounts on the machine, replace the secret.",
		},
		{
			Code:    ConfigUnknownKey,
			Summary: "the configuration has a key that does not exist",
			Meaning: "Unknown keys are refused, because a misspelt key would silently leave its default in force. Nothing was started.",
			Remedy:  "Correct or remove the key; the message names its line and the most similar known key.",
		},
		{
			Code:    ConfigUnreadable,
			Summary: "the configuration cannot be read",
			Meaning: "The file is missing, not readable, or not YAML. Nothing was started.",
			Remedy:  "Check the path after -f, the file's permissions, and its syntax at the line in the message.",
		},
		{
			Code:    ConfigUnused,
			Summary: "keys of the configuration have no effect",
			Meaning: "They differ from their defaults, and belong to a part that is off. A node starts as if they were not set.",
			Remedy:  "Turn on the part that the message names, or remove the keys.",
		},
	}
}
