package operator

import "github.com/spf13/cobra"

// The groups of the commands in the help.
const (
	groupRun     = "run"
	groupLook    = "look"
	groupOperate = "operate"
)

// Commands are the commands of operators.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		checkCommand(), configCommand(), contextCommand(),
		statusCommand(), tailCommand(), replayCommand(), documentCommand(), subscribersCommand(), sinksCommand(), gapsCommand(), auditCommand(), retentionCommand(),
		snapshotCommand(), handoffCommand(), drainCommand(), supervisorCommand(), clusterCommand(),
	}
}

// Group adds the commands of operators and others to the root, each to its group.
func Group(root *cobra.Command, others ...*cobra.Command) {
	root.AddGroup(
		&cobra.Group{ID: groupRun, Title: "Run a node:"},
		&cobra.Group{ID: groupLook, Title: "Look:"},
		&cobra.Group{ID: groupOperate, Title: "Operate:"},
	)
	root.AddCommand(others...)
	root.AddCommand(Commands()...)
	for _, c := range root.Commands() {
		switch c.Name() {
		case "run", "check", "config", "context", "version":
			c.GroupID = groupRun
		case "snapshot", "handoff", "drain", "supervisor", "cluster":
			c.GroupID = groupOperate
		default:
			c.GroupID = groupLook
		}
	}
	root.SetHelpCommandGroupID(groupLook)
	root.SetCompletionCommandGroupID(groupRun)
	root.PersistentPreRunE = checkFlagGroups
	root.Args = knownCommand
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}
