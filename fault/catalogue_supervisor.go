package fault

// supervisorEntries are the reports and refusals of the supervisor, in the order of their codes.
func supervisorEntries() []Entry {
	return []Entry{
		{
			Code:    NodeRestart,
			Summary: "the supervisor has ordered this node to restart",
			Meaning: "A component of the node has made no progress, and no smaller restart helped. The node handed its partitions over, saved its checkpoints and exited with an error, so that systemd or Kubernetes starts it again.",
			Remedy:  "Nothing, if it is back. Otherwise start it. `streamer supervisor reports` shows which component it was; the log before the stop says more.",
		},
		{
			Code:    ParameterLocked,
			Summary: "the setting is locked, or beyond its hard limit",
			Meaning: "Settings of the supervisor that would hide failures cannot be changed: page_on_failure is always true, heartbeat_interval is at most 300s, missed_heartbeats_to_alert at most 10. Nothing was changed.",
			Remedy:  "Stay within the limits, which docs/supervisor.md lists. To silence one component while you work on it, use `streamer supervisor pause-restart`.",
		},
		{
			Code:    SupervisorRestarted,
			Summary: "a component was restarted because it made no progress",
			Meaning: "It missed as many sweeps as are tolerated. A lane of work was restarted within its process, or the process was ordered to drain and exit. Nothing is lost; the restart counts against the component's budget.",
			Remedy:  "Nothing at once. If it happens again, look for the cause in the log of the node before the restart.",
		},
		{
			Code:    SupervisorCascade,
			Summary: "too many restarts would happen at once",
			Meaning: "So many nodes or components fail in one sweep that the cause is probably outside them: the network, the machines, or the node that sweeps. They are paged, and restarted a few at a time or not at all.",
			Remedy:  "Look for a common cause of the components in the report before you restart anything.",
		},
		{
			Code:    SupervisorDown,
			Summary: "a component makes no progress or does not answer",
			Meaning: "It missed supervisor.missed_heartbeats_to_alert sweeps in a row: its endpoint timed out, refused, answered nonsense, or answered while its work made no progress.",
			Remedy:  "`streamer supervisor status` shows the component and the reason. Look into the log of its node. docs/supervisor.md has a runbook.",
		},
		{
			Code:    SupervisorRecovered,
			Summary: "a component makes progress again",
			Meaning: "Its misses are reset to 0.",
			Remedy:  "Nothing.",
		},
		{
			Code:    SupervisorTimeout,
			Summary: "a component's endpoint did not answer in time",
			Meaning: "The timeout is a third of supervisor.heartbeat_interval. It counts as a miss.",
			Remedy:  "Nothing for a single one. For many, check the network to the node, and its load.",
		},
		{
			Code:    SupervisorBudget,
			Summary: "a component's restarts are used up",
			Meaning: "It was restarted supervisor.restart_budget times within supervisor.restart_window and did not recover. It is not restarted until the window ends, because further restarts would hide the cause.",
			Remedy:  "Do not restart it before you know why it fails: read its log from before the restarts. `streamer supervisor pause-restart --slug SLUG --for 1h` keeps it from being restarted when the window ends.",
		},
		{
			Code:    SupervisorPaused,
			Summary: "restarts of a component are paused",
			Meaning: "A restart was due and was not made, because an operator has paused restarts of the component or its node. Its misses are still counted and paged.",
			Remedy:  "Nothing; the pause expires. `streamer supervisor pause-restart --slug SLUG --undo` ends it at once.",
		},
		{
			Code:    SupervisorSwept,
			Summary: "a sweep over all components is complete",
			Meaning: "The leader has asked every component of every node, and has written a report.",
			Remedy:  "Nothing.",
		},
		{
			Code:    SupervisorMissing,
			Summary: "nobody looks after the components",
			Meaning: "No report of a sweep has appeared for two intervals: there is no leader, it hangs, or etcd cannot be read or written. Components that fail now are not paged and not restarted.",
			Remedy:  "Check etcd first, then the leader (`streamer status --plan`): restart it if it does not answer. Another node takes over with the leadership.",
		},
	}
}
