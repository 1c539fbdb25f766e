package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/backend"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/preflight"
)

// URIFlag adds the flag --mongodb-uri. An empty one is refused.
func URIFlag(cmd *cobra.Command, uri *string) {
	const name = "mongodb-uri"
	cmd.Flags().StringVar(uri, name, "", "MongoDB's connection string, instead of mongodb.uri; other users of the machine can see it: with a password set STREAMER_MONGODB_URI")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if *uri == "" && cmd.Flags().Changed(name) {
			return fault.Newf(fault.CommandBadArgument, "--%s is empty: give MongoDB's connection string, or leave the flag out", name)
		}
		return nil
	}
}

// Alone returns the environment with a connection string, if one is given. If neither a file nor a
// variable sets etcd or expects several nodes, checkpoints are then in MongoDB.
func Alone(environment []string, file, uri string) (with []string, inMongoDB bool) {
	if uri == "" {
		return environment, false
	}
	environment = slices.DeleteFunc(slices.Clone(environment), func(variable string) bool {
		return strings.HasPrefix(variable, "STREAMER_MONGODB_URI=") || strings.HasPrefix(variable, "STREAMER_MONGODB_URI_FILE=")
	})
	environment = append(environment, "STREAMER_MONGODB_URI="+uri)
	decided := file != "" || slices.ContainsFunc(environment, func(variable string) bool {
		nodes, expected := strings.CutPrefix(variable, "STREAMER_CLUSTER_EXPECTED_NODES=")
		return expected && nodes != "1" || strings.HasPrefix(variable, "STREAMER_ETCD_") || strings.HasPrefix(variable, "STREAMER_RELIABILITY_CHECKPOINT_BACKEND=")
	})
	if decided {
		return environment, false
	}
	return append(environment, "STREAMER_RELIABILITY_CHECKPOINT_BACKEND=mongo"), true
}

func checkCommand() *cobra.Command {
	var file, output, uri string
	var outage time.Duration
	cmd := &cobra.Command{
		Use: "check", Short: "Check MongoDB, etcd and the checkpoints before a node is started", Args: Args(cobra.NoArgs),
		Long: `Check what a node will find: MongoDB, its log, the store of checkpoints, and whether it is open to strangers. Nothing is written. Each
finding that is not ok has a code and a remedy; the exit code is 1 where a node would not start, or would deliver nothing,
and 2 where the configuration cannot be loaded. With --mongodb-uri the check is of what streamer run finds with it.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := CheckOutput(output); err != nil {
				return err
			}
			environment, _ := Alone(os.Environ(), file, uri)
			cfg, source, err := loadConfig(file, environment)
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
			told := func(preflight.Result) {}
			if output == "" {
				told = tellChecks(cmd.OutOrStdout())
			}
			report := preflight.Run(cmd.Context(), conn, source, outage, told)
			if output != "" {
				err = printResult(cmd.OutOrStdout(), output, report, nil)
			} else {
				err = printResult(cmd.OutOrStdout(), "", report, func(t *tabwriter.Writer) { writeRemedies(t, report) })
			}
			if err != nil {
				return err
			}
			return cmp.Or(context.Cause(cmd.Context()), failed(report))
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "configuration file of the nodes; without one, the defaults and the environment")
	URIFlag(cmd, &uri)
	cmd.Flags().DurationVar(&outage, "outage", 0, "the longest outage to be survived without a loss (default mongodb.outage)")
	OutputFlag(cmd, &output)
	return cmd
}

// loadConfig loads a configuration, and says where it is from.
func loadConfig(file string, environment []string) (cfg config.Config, source preflight.Source, err error) {
	if cfg, err = config.Load(file, environment); err != nil {
		return cfg, source, err
	}
	settings, err := config.Settings(file, environment)
	if err != nil {
		return cfg, source, err
	}
	source.Where = map[string]string{}
	for _, s := range settings {
		source.Where[s.Key] = s.From
		if s.Lacks != "" {
			source.Unused = append(source.Unused, s)
		}
	}
	source.Secrets, err = config.SecretFiles(file, environment)
	return cfg, source, err
}

func configCommand() *cobra.Command {
	return group("config", "Begin, show and check a configuration", configInit(), configShow(), configCheck())
}

func configCheck() *cobra.Command {
	var file, output string
	check := &cobra.Command{
		Use: "check", Short: "Check a configuration without connecting to anything", Args: Args(cobra.NoArgs),
		Long: `Check a configuration file, the environment and the files that they name, without connecting to anything. What would leave the node open to
strangers is a warning with a code and a remedy. Files that are not on this machine are skipped. The exit code is 1 where a node would not start.
With -o json the errors are a list with file, line, code, message and remedy.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := CheckOutput(output); err != nil {
				return err
			}
			cfg, source, err := loadConfig(file, os.Environ())
			if err != nil {
				if output != "" {
					if err := printResult(cmd.OutOrStdout(), output, configReport{Errors: configErrors(err), Report: preflight.Report{Checks: []preflight.Result{}}}, nil); err != nil {
						return err
					}
				}
				return badResult{err}
			}
			report := configReport{Report: preflight.RunHere(cmd.Context(), cfg, source), Errors: []configError{}}
			for _, c := range report.Checks {
				if c.Level == preflight.Fail {
					report.Errors = append(report.Errors, newConfigError(c.Where, c.Code, c.Text))
				}
			}
			if err := printResult(cmd.OutOrStdout(), output, report, func(t *tabwriter.Writer) { writeConfigCheck(t, report.Report) }); err != nil {
				return err
			}
			return cmp.Or(context.Cause(cmd.Context()), failed(report.Report))
		},
	}
	check.Flags().StringVarP(&file, "file", "f", "", "configuration file; without one, the defaults and the environment")
	OutputFlag(check, &output)
	return check
}

// A configReport is what config check -o json prints: OK, the checks, and the errors.
type configReport struct {
	preflight.Report

	Errors []configError `json:"errors"`
}

// A configError is one error of a configuration, for editors and CI.
type configError struct {
	// File and Line, or the Variable of the environment, are where the value is set; all are empty
	// for a value by default.
	File     string     `json:"file,omitempty"`
	Line     int        `json:"line,omitempty"`
	Variable string     `json:"variable,omitempty"`
	Code     fault.Code `json:"code"`
	Message  string     `json:"message"`
	Remedy   string     `json:"remedy"`
	URL      string     `json:"url"`
}

// newConfigError makes a configError. It removes the place from the beginning of the message.
func newConfigError(where string, code fault.Code, message string) configError {
	e := configError{Code: code, Message: strings.TrimPrefix(message, where+": "), URL: code.URL()}
	if entry, ok := fault.Lookup(code); ok {
		e.Remedy = entry.Remedy
	}
	if i := strings.LastIndexByte(where, ':'); i >= 0 {
		if line, err := strconv.Atoi(where[i+1:]); err == nil {
			e.File = where[:i]
			e.Line = line
			return e
		}
	}
	if config.ForNodes(where) {
		e.Variable = where
	}
	return e
}

// configErrors makes a list of the errors of a configuration that cannot be loaded.
func configErrors(err error) (all []configError) {
	for _, e := range Spread(err) {
		where := ""
		text := e.Error()
		if complaint, ok := errors.AsType[*config.Complaint](e); ok {
			where = complaint.Where
			text = complaint.Err.Error()
		}
		all = append(all, newConfigError(where, fault.Of(e), strings.TrimPrefix(text, string(fault.Of(e))+": ")))
	}
	return all
}

func configInit() *cobra.Command {
	return &cobra.Command{
		Use: "init [FILE]", Short: "Write a configuration to begin with", Args: Args(cobra.MaximumNArgs(1)),
		Long: `Write a configuration with the keys that people set first, each with its default and its meaning. Without FILE, or with -, it goes to standard
output. A file that exists is not touched. The reference lists all keys: ` + configReference,
		RunE: func(cmd *cobra.Command, args []string) error {
			write := func(w io.Writer) error {
				_, err := io.WriteString(w, config.Initial)
				return err
			}
			if len(args) == 0 || args[0] == "-" {
				return write(cmd.OutOrStdout())
			}
			return writeFile(args[0], write)
		},
	}
}

// configReference is the page that lists all keys.
const configReference = "https://github.com/mongostream/streamer/blob/main/docs/reference/configuration.md"

func configShow() *cobra.Command {
	var file, output string
	var changed bool
	cmd := &cobra.Command{
		Use: "show", Short: "Show the value of every key and where it is from", Args: Args(cobra.NoArgs),
		Long: `Show the value in force of every key, those of sinks included, and where it is from: the file and line, the variable of the environment, or the
default. Secrets are masked. A key that is set and has no effect names its condition.

  streamer config show -f config.yaml --changed`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := CheckOutput(output); err != nil {
				return err
			}
			settings, err := config.Settings(file, os.Environ())
			if err != nil {
				return err
			}
			if changed {
				settings = slices.DeleteFunc(settings, config.Setting.Default)
			}
			return printResult(cmd.OutOrStdout(), output, settings, func(t *tabwriter.Writer) {
				fmt.Fprintln(t, "KEY\tFROM\tVALUE")
				for _, s := range settings {
					value := printable(orDash(s.Value))
					if s.Lacks != "" {
						value += " (no effect without " + s.Lacks + ")"
					}
					fmt.Fprintf(t, "%s\t%s\t%s\n", s.Key, printable(s.From), value)
				}
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "configuration file; without one, the defaults and the environment")
	cmd.Flags().BoolVar(&changed, "changed", false, "only what is not at its default")
	OutputFlag(cmd, &output)
	return cmd
}

func writeConfigCheck(t *tabwriter.Writer, r preflight.Report) {
	if r.OK {
		fmt.Fprintln(t, "configuration ok")
	}
	for _, c := range r.Checks {
		if c.Level != preflight.OK {
			fmt.Fprintf(t, "%s\t%s\t%s\n", c.Name, c.Level, printable(c.Text))
		}
	}
	writeRemedies(t, r)
}

// writeRemedies writes what to do about each code once, after all that have it. The remedy of the
// first failure is that of the command's error, which follows.
func writeRemedies(t *tabwriter.Writer, r preflight.Report) {
	named := map[fault.Code][]string{}
	for _, c := range r.Checks {
		if c.Code != "" {
			named[c.Code] = append(named[c.Code], c.Name)
		}
	}
	if first := slices.IndexFunc(r.Checks, func(c preflight.Result) bool { return c.Level == preflight.Fail }); first >= 0 {
		delete(named, r.Checks[first].Code)
	}
	for _, c := range r.Checks {
		if names := named[c.Code]; len(names) > 0 {
			fmt.Fprintf(t, "\n%s: %s\n  remedy: %s\n", strings.Join(names, ", "), c.Code, c.Remedy)
			delete(named, c.Code)
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

// nameWidth is the width of the column of names while results come one after the other.
const nameWidth = 18

// tellChecks returns a function that writes each result as it comes.
func tellChecks(w io.Writer) func(preflight.Result) {
	line := func(name, level, text string) {
		_ = printResult(w, "", nil, func(t *tabwriter.Writer) { fmt.Fprintf(t, "%-*s\t%-6s\t%s\n", nameWidth, name, level, text) }) // the report says it again
	}
	line("CHECK", "RESULT", "SAYS")
	return func(r preflight.Result) { line(r.Name, string(r.Level), printable(r.Text)) }
}
