package operator

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"mongostream/fault"
	"mongostream/internal/config"
	"mongostream/internal/place"
)

// Commands are the commands of operators.
func Commands() []*cobra.Command {
	return []*cobra.Command{checkCommand(), statusCommand(), checkpointCommand(), gapsCommand(), clusterCommand()}
}

// An operation is a command about the marks of a cluster: what all of them have in common.
type operation struct {
	file   string
	output string
	yes    bool
	dryRun bool
	quiet  bool // says that the result is no table and no object: -o is not known
}

// command makes the command of an operation. What is written goes to w; an error of do is told once, whatever it joins.
func (o *operation) command(use, short string, args cobra.PositionalArgs, do func(ctx context.Context, at *place.Place, args []string, w io.Writer) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: arguments(args),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			cfg, err := config.Load(o.file, os.Environ())
			if err != nil {
				return err
			}
			at := place.New(cfg, "operator", logger(cfg))
			defer at.Close()
			if err := at.OpenMarks(cmd.Context()); err != nil {
				return err
			}
			return place.FirstOf(do(cmd.Context(), at, args, cmd.OutOrStdout()))
		},
	}
	cmd.Flags().StringVarP(&o.file, "file", "f", "", "configuration file of the nodes; without one, the defaults and the environment")
	if !o.quiet {
		outputFlag(cmd, &o.output)
	}
	return cmd
}

// outputFlag adds -o.
func outputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "", "json")
}

// writing adds the flags of a command that changes something.
func (o *operation) writing(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only show what it would do")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	return cmd
}

// check refuses an output that there is not.
func (o *operation) check() error { return checkOutput(o.output) }

func checkOutput(output string) error {
	if output != "" && output != "json" {
		return fault.Newf(fault.CommandBadArgument, "there is no output %q: use -o json", output)
	}
	return nil
}

// print writes the result: as JSON where that is asked for, otherwise as human does.
func (o *operation) print(w io.Writer, result any, human func(*tabwriter.Writer)) error {
	return printed(w, o.output, result, human)
}

func printed(w io.Writer, output string, result any, human func(*tabwriter.Writer)) error {
	if output == "json" {
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(result); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	human(table)
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// confirm asks on the terminal, unless it was told not to. Where nobody can be asked the answer is no.
func (o *operation) confirm(question string) error {
	if o.yes {
		return nil
	}
	if !askable() {
		return fault.Newf(fault.CommandUnconfirmed, "there is no terminal to ask on: %s", question)
	}
	fmt.Fprintf(os.Stderr, "%s [y/N] ", question)
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return fault.Newf(fault.CommandUnconfirmed, "the answer was no")
	}
	return nil
}

// askable reports whether there is somebody at standard input.
func askable() bool {
	stdin, err := os.Stdin.Stat()
	if err != nil || stdin.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull) // a device too, with nobody at it
	return err != nil || !os.SameFile(stdin, null)
}

// arguments gives what is wrong with a command's arguments its code.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return fault.Newf(fault.CommandBadArgument, "%s: %w", cmd.CommandPath(), err)
		}
		return nil
	}
}

// group makes a command that only has others below it.
func group(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fault.Newf(fault.CommandBadArgument, "there is no command %q in %q", args[0], cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(below...)
	return cmd
}

// logger makes the logger of a command, which logs no less than warnings: what a command has to say is its output.
func logger(cfg config.Config) *slog.Logger {
	options := &slog.HandlerOptions{Level: max(cfg.Log.Level, slog.LevelWarn)}
	if cfg.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options))
}

// who names who gives the command, for the history.
func who() string {
	name := "operator"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// clock shows a time as people read it here.
func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05 MST")
}
