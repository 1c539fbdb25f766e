package fault

// configEntries are what whoever configures and commands meets, in the order of their codes.
func configEntries() []Entry {
	return []Entry{
		{
			Code:    ClockSkew,
			Summary: "this machine's clock and MongoDB's differ",
			Meaning: "Nothing that is decided depends on it: positions carry the server's time, and ages are measured by one clock. Times that people read in logs and tables do not fit each other.",
			Remedy:  "Keep the clocks of all machines in step (chrony, ntpd).",
		},
		{
			Code:    CommandBadArgument,
			Summary: "an argument or flag of the command is invalid",
			Meaning: "The message names it, and says what was expected. Nothing was written.",
			Remedy:  "Correct the argument. The command with --help lists its arguments and flags.",
		},
		{
			Code:    CommandUnconfirmed,
			Summary: "the command changes something and was not confirmed",
			Meaning: "It asks before it writes, and either the answer was no or there is no terminal to ask on. Nothing was written.",
			Remedy:  "Give it again with --yes. Commands that move checkpoints show with --dry-run what they would do.",
		},
		{
			Code:    ConfigBadValue,
			Summary: "a configuration value is out of its range or of the wrong form",
			Meaning: "The value was found in the file, line or environment variable named. Nothing was started and no checkpoint was touched.",
			Remedy:  "Correct the value; config.yaml in the repository lists every key with its form and default. `streamer config check` tests a file.",
		},
		{
			Code:    ConfigConflict,
			Summary: "two configuration values contradict each other",
			Meaning: "Each value is fine alone, together they cannot work. Nothing was started and no checkpoint was touched.",
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
	}
}
