package operator

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/backend"
	"github.com/mongostream/streamer/internal/config"
)

// A command has the flags and the configuration that commands about a cluster share.
type command struct {
	// file is the configuration, output how the result is printed, which validate checks.
	file, output string
	// outputs are the values of -o; nil for json alone.
	outputs []string
	// yes says not to ask, dryRun to change nothing.
	yes, dryRun bool
	// noOutput says that the result is no table and no object: -o is not known.
	noOutput bool
	// allNodes says that the command must know of all nodes: where they share the partitions of
	// checkpoints in MongoDB it reaches their etcd, too.
	allNodes bool
	// node is the node that the command can ask instead of the stores, and atNode how; nil where it
	// cannot.
	node *nodeClient
	// storesFirst says that with a configuration the stores do the command, even if a node is
	// named.
	storesFirst bool
	atNode      func(ctx context.Context, args []string, w io.Writer) error
	// accepts are the faults of backend.Verify that the command is there to resolve.
	accepts []fault.Code

	// What runs, for the audit log.
	cmd  *cobra.Command
	conn *backend.Conn
	args []string
}

// An action is the body of a command. It writes its result to w. Of joined errors only the first is
// shown.
type action func(ctx context.Context, conn *backend.Conn, args []string, w io.Writer) error

// build makes the cobra command.
func (o *command) build(use, short string, args cobra.PositionalArgs, do action) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: Args(args), RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args, do) },
	}
	cmd.Flags().StringVarP(&o.file, "file", "f", "", "configuration file of the nodes; without one, the defaults and the environment")
	if !o.noOutput {
		OutputFlag(cmd, &o.output, o.outputs...)
	}
	if o.node != nil {
		o.node.addFlags(cmd)
	}
	return cmd
}

// run loads the configuration, connects, and runs the action.
func (o *command) run(cmd *cobra.Command, args []string, do action) error {
	if err := o.validate(); err != nil {
		return err
	}
	o.cmd = cmd
	o.args = args
	if o.asksNode() {
		if err := o.atNode(cmd.Context(), args, Terminal{cmd.OutOrStdout()}); !errors.Is(err, errDryRun) {
			return err
		}
		return nil
	}
	cfg, err := config.Load(o.file, os.Environ())
	if err != nil {
		return err
	}
	conn := backend.New(cfg, "operator", newLogger(cfg))
	defer conn.Close()
	if err := conn.OpenForOperator(cmd.Context(), o.allNodes); err != nil && !slices.Contains(o.accepts, fault.Of(err)) {
		return err
	}
	o.conn = conn
	if err := do(cmd.Context(), conn, args, Terminal{cmd.OutOrStdout()}); !errors.Is(err, errDryRun) {
		return backend.FirstError(err)
	}
	return nil
}

// asksNode reports whether a node does the command: one that is named, or where no configuration
// says where the stores are.
func (o *command) asksNode() bool {
	if o.node == nil {
		return false
	}
	o.node.file = o.file
	bare := o.file == "" && !configured(os.Environ())
	return bare || o.node.names() && !o.storesFirst
}

// OutputFlag adds -o with its values, json unless others are given.
func OutputFlag(cmd *cobra.Command, output *string, values ...string) {
	if len(values) == 0 {
		values = []string{"json"}
	}
	cmd.Flags().StringVarP(output, "output", "o", "", strings.Join(values, ", "))
	complete(cmd, "output", cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// outputWide is a table with more columns.
const outputWide = "wide"

// planFlags adds the flags of a command that shows a plan before it changes something.
func (o *command) planFlags(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only show the effect")
	return o.confirmFlag(cmd)
}

// confirmFlag adds the flag of a command that changes something.
func (o *command) confirmFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	return cmd
}

// validate refuses an unknown output.
func (o *command) validate() error {
	if slices.Contains(o.outputs, o.output) {
		return nil
	}
	return CheckOutput(o.output)
}

// CheckOutput refuses an unknown output.
func CheckOutput(output string) error {
	if output != "" && output != "json" {
		return fault.Newf(fault.CommandBadArgument, "unknown output %q: use -o json", output)
	}
	return nil
}

// print writes the result: as JSON if that is requested, otherwise with human.
func (o *command) print(w io.Writer, result any, human func(*tabwriter.Writer)) error {
	return printResult(w, o.output, result, human)
}

// printResult writes a result: as JSON if output requests it, otherwise with human.
func printResult(w io.Writer, output string, result any, human func(*tabwriter.Writer)) error {
	if output == "json" {
		return PrintJSON(w, result)
	}
	if err := writeTable(w, human); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// PrintJSON writes a result as indented JSON.
func PrintJSON(w io.Writer, result any) error {
	encoder := json.NewEncoder(Terminal{w})
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(result); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// decide decides whether a command executes its plan. Every command that changes something calls it
// before any write: it shows the plan, asks, and returns nil for yes. It shows the plan as JSON
// only if that is the result: with --dry-run, and if the plan is refused. It returns errDryRun for
// --dry-run, and refused, the error of the plan, if that is not nil.
func (o *command) decide(ctx context.Context, w io.Writer, plan any, human func(*tabwriter.Writer), refused error, question string) error {
	switch {
	case o.dryRun || refused != nil:
		if err := o.print(w, plan, human); err != nil {
			return err
		}
		return cmp.Or(refused, errDryRun)
	case o.output != "json":
		if err := o.print(w, plan, human); err != nil {
			return err
		}
	case !o.yes && interactive():
		if err := printResult(os.Stderr, "", plan, human); err != nil {
			return err
		}
	}
	return o.confirm(ctx, question)
}

// errDryRun ends a command that only shows its plan.
var errDryRun = errors.New("nothing was done: --dry-run")

// confirm asks for confirmation on the terminal, unless --yes is set, and writes a record into the
// audit log. Any answer but yes, and no terminal, is the fault CommandUnconfirmed.
func (o *command) confirm(ctx context.Context, question string) error {
	if err := o.ask(question); err != nil {
		return err
	}
	return o.record(ctx)
}

// ask asks for confirmation.
func (o *command) ask(question string) error {
	if o.yes {
		return nil
	}
	if !interactive() {
		return fault.Newf(fault.CommandUnconfirmed, "there is no terminal for the question: %s", question)
	}
	fmt.Fprintf(Terminal{os.Stderr}, "%s [y/N] ", question)
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return fault.Newf(fault.CommandUnconfirmed, "the answer was no")
	}
	return nil
}

// interactive reports whether standard input is a terminal.
func interactive() bool {
	stdin, err := os.Stdin.Stat()
	if err != nil || stdin.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull) // also a device, but without a user
	return err != nil || !os.SameFile(stdin, null)
}

// Args makes the fault CommandBadArgument of an error of check.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return fault.Newf(fault.CommandBadArgument, "%s: %w", cmd.CommandPath(), err)
		}
		return nil
	}
}

// guesses are the names of flags in other tools, and those that mean the same here: of the latter
// the first that a command has.
func guesses() map[string][]string {
	address, file, output := []string{"address"}, []string{"config", "file"}, []string{"output"}
	count := []string{"count", "limit", "last"}
	return map[string][]string{
		"url": address, "host": address, "hostname": address, "endpoint": address, "endpoints": address, "server": address, "addr": address, "node": address,
		"config": file, "config-file": file, "conf": file, "c": file,
		"format": output, "json": output, "out": output,
		"n": count, "count": count, "limit": count, "last": count, "lines": count,
		"force": {"yes"}, "assume-yes": {"yes"}, "no-confirm": {"yes"},
	}
}

// FlagError makes the fault CommandBadArgument of an error in a command's flags. For a flag that
// does not exist it names the one that is meant: by its name in other tools, or the most similar.
func FlagError(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return fault.Newf(fault.CommandBadArgument, "%s: %w", cmd.CommandPath(), err)
	}
	for _, name := range guesses()[unknown.GetSpecifiedName()] {
		if f := cmd.Flags().Lookup(name); f != nil {
			short := ""
			if f.Shorthand != "" {
				short = ", or -" + f.Shorthand
			}
			return fault.Newf(fault.CommandBadArgument, "%s: there is no flag %s; it is called --%s%s", cmd.CommandPath(), dashed(unknown), name, short)
		}
	}
	if unknown.GetSpecifiedShortnames() != "" {
		return fault.Newf(fault.CommandBadArgument, "%s: %w", cmd.CommandPath(), err)
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, "--"+f.Name) })
	name := dashed(unknown)
	return fault.Newf(fault.CommandBadArgument, "%s: there is no flag %s%s", cmd.CommandPath(), name, config.Suggestion(name, known))
}

// dashed is an unknown flag as it was given.
func dashed(unknown *pflag.NotExistError) string {
	if unknown.GetSpecifiedShortnames() != "" {
		return "-" + unknown.GetSpecifiedName()
	}
	return "--" + unknown.GetSpecifiedName()
}

// checkFlagGroups makes the fault CommandBadArgument of flags that exclude or need each other:
// cobra does not give those errors to FlagError.
func checkFlagGroups(cmd *cobra.Command, _ []string) error {
	if err := cmd.ValidateFlagGroups(); err != nil {
		return FlagError(cmd, err)
	}
	return nil
}

// group makes a command that has others below it. Alone it shows its help.
func group(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(below...)
	return cmd
}

// knownCommand refuses an argument of a command that only has others below it.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var known []string
	for _, below := range cmd.Commands() {
		known = append(known, below.Name())
	}
	return fault.Newf(fault.CommandBadArgument, "there is no command %q in %q%s", args[0], cmd.CommandPath(), config.Suggestion(args[0], known))
}

// alone makes a group that does what its first command does where none is named.
func alone(first *cobra.Command, use, short string, others ...*cobra.Command) *cobra.Command {
	cmd := group(use, short, append([]*cobra.Command{first}, others...)...)
	cmd.RunE = first.RunE
	cmd.Flags().AddFlagSet(first.Flags())
	return cmd
}

// complete completes the values of a flag.
func complete(cmd *cobra.Command, flag string, values cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, values); err != nil {
		panic(err) // there is no such flag, or it has one already
	}
}

// newLogger makes the logger of a command. It logs warnings and errors only: the result of a
// command is its output.
func newLogger(cfg config.Config) *slog.Logger { return cfg.Log.Logger(os.Stderr, slog.LevelWarn) }

// operatorName names the operator, for the history.
func operatorName() string {
	name := "operator"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// quoted returns a text that somebody else has chosen. It adds quotes if the text does not look
// like one word or has characters that a terminal would obey.
func quoted(s string) string {
	if quoted := strconv.Quote(s); s == "" || len(quoted) != len(s)+2 || strings.Contains(s, " ") {
		return quoted
	}
	return s
}

// formatTime shows a time as people read it here.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05 MST")
}
