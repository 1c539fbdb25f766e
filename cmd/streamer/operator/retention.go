package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/backend"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/retention"
)

// A retained is a command on the store of a retained log, which needs no running node.
type retained struct {
	command

	store, chain string
}

func retentionCommand() *cobra.Command {
	cmd := group("retention", "Look at the retained log, and expire it", listRetained(), showRetained(), verifyRetained(), pruneRetained(), forgetRetained())
	cmd.Long = `Look at the retained log in its folder or bucket, and expire it. The commands read the store itself, beside a running node or without one.

  streamer retention list
  streamer retention verify --store file:///var/lib/streamer/log -o json
  streamer retention prune --max-age 72h`
	return cmd
}

// build makes the cobra command. The action gets the chosen chains.
func (o *retained) build(use, short, long string, args cobra.PositionalArgs, do func(ctx context.Context, files backend.Retained, chains []string, args []string, w io.Writer) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Args: Args(args),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			files, chains, err := o.open(cmd.Context())
			if err != nil {
				return err
			}
			return do(cmd.Context(), files, chains, args, Terminal{cmd.OutOrStdout()})
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.file, "file", "f", "", "configuration file of the node; without one, the defaults and the environment")
	flags.StringVar(&o.store, "store", "", "URL of the folder or bucket (file:///…, s3://…) instead of the configuration's retention.store")
	flags.StringVar(&o.chain, "chain", "", "only this chain, v1/SOURCE/INCARNATION; a store has one for each incarnation of a cluster")
	OutputFlag(cmd, &o.output)
	return cmd
}

// open opens the store for reading, and lists the chains in it.
func (o *retained) open(ctx context.Context) (backend.Retained, []string, error) {
	if o.store == "" {
		cfg, err := config.Load(o.file, os.Environ())
		if err != nil {
			return nil, nil, err
		}
		if o.store = cfg.Retention.Store; o.store == "" {
			return nil, nil, fault.Newf(fault.CommandBadArgument, "retention.store is not set: nothing is retained; --store names another folder or bucket")
		}
	}
	if err := backend.CheckRetained(o.store); err != nil {
		return nil, nil, fault.Newf(fault.CommandBadArgument, "--store: %w", err)
	}
	store, err := backend.ReadRetained(o.store)
	if err != nil {
		return nil, nil, storeFault(err)
	}
	chains, err := store.Chains(ctx)
	if err != nil {
		return nil, nil, storeFault(err)
	}
	switch {
	case o.chain == "":
	case slices.Contains(chains, o.chain):
		chains = []string{o.chain}
	default:
		return nil, nil, fault.Newf(fault.CommandBadArgument, "--chain: there is no %q in the %s%s", o.chain, o.place(), config.Suggestion(o.chain, chains))
	}
	return store, chains, nil
}

// storeFault converts an error of the store to a fault.
func storeFault(err error) error {
	if fault.Of(err) != "" {
		return err
	}
	return fault.New(fault.RetentionStore, err)
}

// place returns the kind of the store.
func (o *retained) place() string {
	if backend.SharedStore(o.store) {
		return "bucket"
	}
	return "folder"
}

// one returns the only chain.
func one(chains []string) (string, error) {
	if len(chains) != 1 {
		return "", fault.Newf(fault.CommandBadArgument, "the store has %d chains: name one with --chain (streamer retention list)", len(chains))
	}
	return chains[0], nil
}

// A retainedChain is the public form of a chain.
type retainedChain struct {
	Chain string `json:"chain"`
	// Floor is the number below which segments have expired; Expired is how many of those are not
	// deleted yet.
	Floor   uint64 `json:"floor"`
	Expired int    `json:"expired"`
	Bytes   int64  `json:"bytes"`
	// Erased are the times of the recorded erasures (streamer retention forget).
	Erased []time.Time `json:"erased"`
	// From and To bound the log of the chain, nil without a readable segment.
	From     *time.Time        `json:"from"`
	To       *time.Time        `json:"to"`
	Segments []retainedSegment `json:"segments"`
}

// A retainedSegment is the public form of a segment.
type retainedSegment struct {
	Number   uint64              `json:"segment"`
	From     change.Timestamp    `json:"from"`
	To       change.Timestamp    `json:"to"`
	Changes  int                 `json:"changes"`
	Losses   int                 `json:"losses"`
	Bytes    int64               `json:"bytes"`
	Written  time.Time           `json:"written"`
	Writer   string              `json:"writer,omitempty"`
	Version  string              `json:"version,omitempty"`
	Coverage *retention.Coverage `json:"coverage,omitempty"`
	// Error says why the segment cannot be read.
	Error string `json:"error,omitempty"`
}

func listRetained() *cobra.Command {
	var o retained
	return o.build("list", "List the segments of the retained log", "", cobra.NoArgs,
		func(ctx context.Context, files backend.Retained, chains, _ []string, w io.Writer) error {
			all := []retainedChain{}
			for _, folder := range chains {
				c, err := readChain(ctx, retention.ChainAt(files, folder), folder)
				if err != nil {
					return storeFault(err)
				}
				all = append(all, c)
			}
			return o.print(w, all, func(t *tabwriter.Writer) {
				if len(all) == 0 {
					fmt.Fprintf(t, "The %s has no retained log.\n", o.place())
				}
				writeChains(t, all)
			})
		})
}

// readChain reads the headers of a chain.
func readChain(ctx context.Context, chain *retention.Chain, folder string) (c retainedChain, err error) {
	c = retainedChain{Chain: folder, Segments: []retainedSegment{}}
	if c.Floor, c.Expired, err = chain.Expired(ctx); err != nil {
		return c, err
	}
	erased, err := chain.Forgettings(ctx)
	if err != nil {
		return c, err
	}
	c.Erased = append([]time.Time{}, erased...)
	all, err := chain.Segments(ctx)
	if err != nil {
		return c, err
	}
	for _, s := range all {
		row := showSegment(ctx, chain, s)
		c.Segments = append(c.Segments, row)
		c.Bytes += s.Size
		if row.Error != "" {
			continue
		}
		from := row.From.Time()
		to := row.To.Time()
		if c.From == nil {
			c.From = &from
		}
		c.To = &to
	}
	return c, nil
}

// showSegment returns the public form of a segment.
func showSegment(ctx context.Context, chain *retention.Chain, s retention.Segment) retainedSegment {
	row := retainedSegment{Number: s.Number, Bytes: s.Size, Written: s.Modified.UTC()}
	h, about, err := chain.Header(ctx, s.Number)
	if err != nil {
		row.Error = err.Error()
		return row
	}
	row.Written = about.Modified.UTC() // not when something was erased
	row.From = h.From
	row.To = h.To
	row.Changes = h.Events
	row.Losses = h.Losses
	row.Writer = h.Writer
	row.Version = h.Version
	row.Coverage = &h.Coverage
	return row
}

// writeChains writes chains for people.
func writeChains(t *tabwriter.Writer, all []retainedChain) {
	for i, c := range all {
		if i > 0 {
			fmt.Fprintln(t)
		}
		fmt.Fprintf(t, "%s: %d segments, %s", printable(c.Chain), len(c.Segments), formatBytes(c.Bytes))
		if c.From != nil {
			fmt.Fprintf(t, ", from %s to %s", formatTime(*c.From), formatTime(*c.To))
		}
		fmt.Fprintln(t)
		if c.Expired > 0 {
			fmt.Fprintf(t, "%d segments have expired, and are deleted an hour after they did\n", c.Expired)
		}
		if n := len(c.Erased); n > 0 {
			fmt.Fprintf(t, "erasures recorded: %d, the last one at %s\n", n, formatTime(c.Erased[n-1]))
		}
		fmt.Fprintln(t, "SEGMENT\tFROM\tTO\tCHANGES\tLOSSES\tSIZE\tWRITER")
		for _, s := range c.Segments {
			if s.Error != "" {
				fmt.Fprintf(t, "%d\t%s\n", s.Number, printable(s.Error))
				continue
			}
			fmt.Fprintf(t, "%d\t%s\t%s\t%d\t%d\t%s\t%s\n", s.Number, formatTime(s.From.Time()), formatTime(s.To.Time()), s.Changes, s.Losses, formatBytes(s.Bytes), printable(s.Writer))
		}
	}
}

// formatBytes shows a size.
func formatBytes(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	size := float64(n)
	unit := 0
	for ; size >= 1024 && unit < len(units)-1; unit++ {
		size /= 1024
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", size, units[unit])
}

// A shownSegment is a segment with its lanes.
type shownSegment struct {
	retainedSegment

	Lanes []retention.Lane `json:"lanes"`
}

func showRetained() *cobra.Command {
	var o retained
	return o.build("show SEGMENT", "Show the span of a segment, and its namespaces", "", cobra.ExactArgs(1),
		func(ctx context.Context, files backend.Retained, chains, args []string, w io.Writer) error {
			folder, err := one(chains)
			if err != nil {
				return err
			}
			n, err := strconv.ParseUint(args[0], 10, 64)
			if err != nil {
				return fault.Newf(fault.CommandBadArgument, "%q is no number of a segment (streamer retention list)", args[0])
			}
			chain := retention.ChainAt(files, folder)
			h, about, err := chain.Header(ctx, n)
			if errors.Is(err, retention.ErrNotFound) {
				return fault.Newf(fault.CommandBadArgument, "there is no segment %d (streamer retention list)", n)
			} else if err != nil {
				return badResult{err}
			}
			lanes, err := chain.Lanes(ctx, h)
			if err != nil {
				return badResult{err}
			}
			s := shownSegment{showSegment(ctx, chain, retention.Segment{Number: n, Object: about}), lanes}
			return o.print(w, s, func(t *tabwriter.Writer) { writeSegment(t, s) })
		})
}

// writeSegment writes a segment for people.
func writeSegment(t *tabwriter.Writer, s shownSegment) {
	fmt.Fprintf(t, "segment\t%d\nfrom\t%s\nto\t%s\nchanges\t%d\nlosses\t%d\nsize\t%s\nwritten\t%s by %s %s\n", s.Number, formatTime(s.From.Time()), formatTime(s.To.Time()),
		s.Changes, s.Losses, formatBytes(s.Bytes), formatTime(s.Written), printable(s.Writer), printable(s.Version))
	fmt.Fprintf(t, "documents\tfull_document %s, before_change %s\n", orDash(s.Coverage.FullDocument), orDash(s.Coverage.BeforeChange))
	fmt.Fprintf(t, "watched\t%s\n\nNAMESPACES\tENTRIES\tBLOCKS\tSIZE\tBEFORE COMPRESSION\n", printable(orDash(strings.Join(s.Coverage.Namespaces, ","))))
	for _, l := range s.Lanes {
		names := orDash(strings.Join(l.Namespaces, ","))
		if l.Losses {
			names = "(losses)"
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\n", printable(names), l.Entries, l.Blocks, formatBytes(l.Bytes), formatBytes(l.Raw))
	}
}

// A verifiedChain is a chain and the outcome of its verification.
type verifiedChain struct {
	Chain string `json:"chain"`
	retention.Verification
}

func verifyRetained() *cobra.Command {
	var o retained
	long := "Read every block of the retained log, and look whether its segments follow each other. The exit code is 1 if anything is wrong, or if there is no log."
	return o.build("verify", "Read the whole retained log, and say what is damaged or missing", long, cobra.NoArgs,
		func(ctx context.Context, files backend.Retained, chains, _ []string, w io.Writer) error {
			if len(chains) == 0 {
				return fault.Newf(fault.RetentionStore, "verify %s: the %s has no retained log", o.store, o.place())
			}
			all := []verifiedChain{}
			wrong := 0
			for _, folder := range chains {
				v, err := retention.ChainAt(files, folder).Verify(ctx)
				if err != nil {
					return storeFault(err)
				}
				all = append(all, verifiedChain{folder, v})
				wrong += len(v.Findings)
			}
			err := o.print(w, all, func(t *tabwriter.Writer) { writeVerified(t, all) })
			if err == nil && wrong > 0 {
				err = badResult{fmt.Errorf("the retained log has %d faults", wrong)}
			}
			return err
		})
}

// writeVerified writes findings for people.
func writeVerified(t *tabwriter.Writer, all []verifiedChain) {
	for _, c := range all {
		fmt.Fprintf(t, "%s: %d segments, %d changes, %d losses, %s (%s before compression): %d faults\n", printable(c.Chain), c.Segments, c.Events, c.Losses,
			formatBytes(c.Bytes), formatBytes(c.Raw), len(c.Findings))
		for _, f := range c.Findings {
			fmt.Fprintf(t, "segment %d\t%s\n", f.Segment, printable(f.Problem))
		}
	}
}

// A pruned is the outcome of expiry.
type pruned struct {
	Chain   string `json:"chain"`
	Floor   uint64 `json:"floor"`
	Expired int    `json:"expired"`
	Deleted int    `json:"deleted"`
}

func pruneRetained() *cobra.Command {
	var o retained
	var age, size string
	long := `Expire segments that are older than --max-age, and the oldest ones while all together are larger than --max-bytes. If only one of them is given, it is
the only bound; without them, retention.max_age and retention.max_bytes of the configuration count. Expired segments are no longer read, and are
deleted an hour later: by the node, or by this command. The newest segment stays. Run it as the user of the node, whose files they are.`
	cmd := o.build("prune", "Expire the oldest segments, and delete those that expired an hour ago", long, cobra.NoArgs,
		func(ctx context.Context, _ backend.Retained, chains, _ []string, w io.Writer) error {
			folder, err := one(chains)
			if err != nil {
				return err
			}
			keep, err := o.bounds(age, size)
			if err != nil {
				return err
			}
			if err := o.checkOwner(folder); err != nil {
				return err
			}
			if err := o.ask(pruneQuestion(keep, folder)); err != nil {
				return err
			}
			writable, err := backend.OpenRetained(o.store)
			if err != nil {
				return storeFault(err)
			}
			defer writable.Close() //nolint:errcheck // nothing is left to write
			if err := o.record(ctx, writable, folder, "prune", "--max-age="+keep.MaxAge.String(), "--max-bytes="+formatBytes(keep.MaxBytes)); err != nil {
				fmt.Fprintf(Terminal{os.Stderr}, "The audit log of the nodes will not have this: %v\n", err) // a full disk must not keep it from being freed
			}
			p := pruned{Chain: folder}
			chain := retention.ChainAt(writable, folder)
			if p.Deleted, err = chain.Expire(ctx, keep.MaxAge, keep.MaxBytes); err == nil {
				p.Floor, p.Expired, err = chain.Expired(ctx)
			}
			if err != nil {
				return storeFault(err)
			}
			return o.print(w, p, func(t *tabwriter.Writer) {
				fmt.Fprintf(t, "%s: %d segments deleted; %d more have expired, and can be deleted an hour after they did\n", printable(p.Chain), p.Deleted, p.Expired)
			})
		})
	cmd.Flags().StringVar(&age, "max-age", "", "how long segments are kept, such as 72h; 0s is no bound")
	cmd.Flags().StringVar(&size, "max-bytes", "", "how large all segments may be together, such as 20GiB")
	return o.confirmFlag(cmd)
}

// record logs that the operator has confirmed a command on a chain, and keeps it in the store for
// the audit log of the nodes.
func (o *retained) record(ctx context.Context, store retention.Store, chain, command string, arguments ...string) error {
	command = "streamer retention " + command
	arguments = append([]string{"--chain=" + chain}, arguments...)
	n := admin.OperatedNotice(operatorName(), command, arguments)
	newLogger(config.Config{}).Warn("audit", "channel", "audit", "kind", n.Kind, "by", n.Node, "text", n.Text)
	if err := retention.ChainAt(store, chain).RecordAction(ctx, operatorName(), command, arguments...); err != nil {
		return storeFault(err)
	}
	return nil
}

// checkOwner refuses to write into a chain's folder as another user than the node's. A bucket's
// objects have no user.
func (o *retained) checkOwner(chain string) error {
	if backend.SharedStore(o.store) {
		return nil
	}
	folder, err := retention.FolderOf(o.store)
	if err != nil {
		return fault.New(fault.CommandBadArgument, err)
	}
	return checkOwner(filepath.Join(folder, filepath.FromSlash(chain), "seg"), os.Geteuid())
}

// checkOwner refuses to write into a folder of another user: the node runs as that user, and could
// not use the files of this one.
func checkOwner(folder string, user int) error {
	info, err := os.Stat(folder)
	if err != nil {
		return fault.New(fault.RetentionStore, err)
	}
	if owner, known := info.Sys().(*syscall.Stat_t); known && int(owner.Uid) != user {
		return fault.Newf(fault.RetentionStore, "%s belongs to user %d, who could not use files of user %d: run the command as that user (sudo -u '#%[2]d')", folder, owner.Uid, user)
	}
	return nil
}

// pruneQuestion asks whether to expire a chain, and names the bounds.
func pruneQuestion(keep config.Retention, chain string) string {
	var bounds []string
	if keep.MaxAge > 0 {
		bounds = append(bounds, fmt.Sprintf("older than %s", keep.MaxAge))
	}
	if keep.MaxBytes > 0 {
		bounds = append(bounds, "beyond "+formatBytes(keep.MaxBytes))
	}
	if len(bounds) == 0 {
		return fmt.Sprintf("Delete what has expired in %s?", chain)
	}
	return fmt.Sprintf("Expire what is %s in %s?", strings.Join(bounds, " or "), chain)
}

// bounds returns the bounds of the configuration, or of the flags, which are checked like its keys.
// A flag that is given alone is the only bound.
func (o *retained) bounds(age, size string) (config.Retention, error) {
	environment := slices.Clone(os.Environ())
	for name, value := range map[string]string{"STREAMER_RETENTION_MAX_AGE": age, "STREAMER_RETENTION_MAX_BYTES": size} {
		if value != "" {
			environment = slices.DeleteFunc(environment, func(v string) bool { return strings.HasPrefix(v, name+"=") })
			environment = append(environment, name+"="+value)
		}
	}
	cfg, err := config.Load(o.file, environment)
	if err != nil {
		return config.Retention{}, err
	}
	keep := cfg.Retention
	switch {
	case age == "" && size != "":
		keep.MaxAge = 0
	case age != "" && size == "":
		keep.MaxBytes = 0
	}
	return keep, nil
}
