package operator

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/backend"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/preflight"
)

func checkCommand() *cobra.Command {
	var file, output string
	var outage time.Duration
	cmd := &cobra.Command{
		Use: "check", Short: "Check MongoDB, etcd and the checkpoints before a node is started", Args: checkArgs(cobra.NoArgs),
		Long: `Check what a node will find: MongoDB, its log, the store of checkpoints, and whether it is open to strangers. Nothing is written. Each
finding that is not ok has a code and a remedy; the exit code is 1 where a node would not start, or would deliver nothing.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			cfg, secrets, err := loadConfig(file)
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("outage") {
				outage = cfg.MongoDB.Outage
			}
			if outage < 0 {
				return fault.Newf(fault.CommandBadArgument, "--outage %s is negative", outage)
			}
			conn := backend.New(cfg, "operator", newLogger(cfg))
			defer conn.Close()
			report := preflight.Run(cmd.Context(), conn, secrets, outage)
			if err := printResult(cmd.OutOrStdout(), output, report, func(t *tabwriter.Writer) { writeChecks(t, report) }); err != nil {
				return err
			}
			return cmp.Or(context.Cause(cmd.Context()), failed(report))
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "configuration file of the nodes; without one, the defaults and the environment")
	cmd.Flags().DurationVar(&outage, "outage", 0, "the longest outage to be survived without a loss (default mongodb.outage)")
	outputFlag(cmd, &output)
	return cmd
}

// loadConfig loads a configuration, and says which files hold its secrets.
func loadConfig(file string) (config.Config, map[string]string, error) {
	cfg, err := config.Load(file, os.Environ())
	if err != nil {
		return config.Config{}, nil, err
	}
	secrets, err := config.SecretFiles(file, os.Environ())
	return cfg, secrets, err
}

func configCommand() *cobra.Command {
	var file, output string
	check := &cobra.Command{
		Use: "check", Short: "Check a configuration without connecting to anything", Args: checkArgs(cobra.NoArgs),
		Long: `Check a configuration file, the environment and the files that they name, without connecting to anything. What would leave the node open to
strangers is a warning with a code and a remedy. Files that are not on this machine are skipped. The exit code is 1 where a node would not start.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			cfg, secrets, err := loadConfig(file)
			if err != nil {
				return badResult{err}
			}
			report := preflight.RunHere(cmd.Context(), cfg, secrets)
			if err := printResult(cmd.OutOrStdout(), output, report, func(t *tabwriter.Writer) { writeConfigCheck(t, report) }); err != nil {
				return err
			}
			return cmp.Or(context.Cause(cmd.Context()), failed(report))
		},
	}
	check.Flags().StringVarP(&file, "file", "f", "", "configuration file; without one, the defaults and the environment")
	outputFlag(check, &output)
	return group("config", "Check the configuration", check)
}

func writeConfigCheck(t *tabwriter.Writer, r preflight.Report) {
	if r.OK {
		fmt.Fprintln(t, "configuration ok")
	}
	for _, c := range r.Checks {
		if c.Level != preflight.OK {
			fmt.Fprintf(t, "\n%s: %s: %s\n", c.Name, c.Level, c.Text)
		}
		if c.Code != "" {
			fmt.Fprintf(t, "  code:   %s\n  remedy: %s\n", c.Code, c.Remedy)
		}
	}
}

// failed returns the first failure of a report, with the number of all.
func failed(r preflight.Report) error {
	var first *preflight.Result
	n := 0
	for i := range r.Checks {
		if r.Checks[i].Level == preflight.Fail {
			n++
			first = cmp.Or(first, &r.Checks[i])
		}
	}
	if first == nil {
		return nil
	}
	return badResult{fault.Newf(first.Code, "%d of %d checks failed, the first is %s: %s", n, len(r.Checks), first.Name, first.Text)}
}

func writeChecks(t *tabwriter.Writer, r preflight.Report) {
	fmt.Fprintln(t, "CHECK\tRESULT\tSAYS")
	for _, c := range r.Checks {
		fmt.Fprintf(t, "%s\t%s\t%s\n", c.Name, c.Level, c.Text)
	}
	for _, c := range r.Checks {
		if c.Code != "" {
			fmt.Fprintf(t, "\n%s: %s\n  remedy: %s\n", c.Name, c.Code, c.Remedy)
		}
	}
}
