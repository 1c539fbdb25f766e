package operator

import "github.com/spf13/cobra"

// Commands are the commands of operators.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		checkCommand(), configCommand(), statusCommand(), tailCommand(), subscribersCommand(), snapshotCommand(), sinksCommand(), gapsCommand(), auditCommand(), clusterCommand(),
		handoffCommand(), drainCommand(), supervisorCommand(),
	}
}
