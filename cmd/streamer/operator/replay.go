package operator

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/gateway/sse"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/backend"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/streamer"
)

// A replay reads a stretch of the log again.
type replay struct {
	command

	client               nodeClient
	selects              selection
	namespace            string
	from, to, into, sink string
	why                  string
	force                bool
}

func replayCommand() *cobra.Command {
	var o replay
	cmd := &cobra.Command{
		Use:   "replay --from TIME (--file FILE [--to TIME] | --sink NAME)",
		Short: "Read a stretch of the log again, into a file or through a sink",
		Long: `Read a stretch of the log again that the oplog and the retained log still have.

With --file the changes from --from to before --to are written into a new file, one a line, as "streamer tail -o json" shows them. The file appears
when it is complete, for its owner alone. Where changes of the stretch may be missing it has a line with the loss in their place, and the exit code is 1.
A node (--address) reads the log.

With --sink the sink is moved back to --from, as by "streamer subscribers rewind": it publishes all later changes again, in order, up to the present. It takes
no --to, because a sink that published an old stretch alone would leave old states in its target after newer ones. It reads the stores that the
configuration names, shows its plan, asks, and is recorded in the audit log.

  streamer replay --from -2h --to -1h --file orders.ndjson --namespace shop.orders
  streamer replay --from 2026-01-31T12:00:00Z --file paid.ndjson --filter 'doc.status == "paid"'
  streamer replay --from -1d --sink search --dry-run`,
		Args: Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.from == "" {
				return fault.Newf(fault.CommandBadArgument, "--from is missing: where does the stretch begin?")
			}
			if o.sink != "" {
				return o.throughSink(cmd, args)
			}
			if o.into == "" {
				return fault.Newf(fault.CommandBadArgument, "the name is empty: write --file FILE, or --sink NAME")
			}
			return o.intoFile(cmd)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.from, "from", "", "where to begin: a time ("+admin.TimeForms+"), or earliest; with --sink also a position as subscribers rewind takes it")
	flags.StringVar(&o.to, "to", "", "where to end: a time; without it, now; only with --file")
	flags.StringVar(&o.into, "file", "", "the file to write")
	flags.BoolVar(&o.force, "force", false, "replace the file if there is one")
	flags.StringVar(&o.namespace, "namespace", "", "only this collection, DB.COLL, or this database, DB")
	o.selects.addFlags(cmd)
	flags.StringVar(&o.sink, "sink", "", "the sink that publishes again")
	flags.StringVar(&o.why, "why", "", "with --sink: the reason; kept in the history")
	flags.StringVarP(&o.command.file, "config", "f", "", "configuration file of the nodes; without one, the defaults and the environment")
	OutputFlag(cmd, &o.output)
	o.client.addFlags(cmd)
	complete(cmd, "sink", completeFrom(&o.client, sinkNames))
	o.planFlags(cmd)
	cmd.MarkFlagsOneRequired("file", "sink")
	for _, ofFile := range []string{"file", "to", "force", "namespace", "db", "coll", "op", "filter", "address", "context", "token-file", "ca-file", "cert-file", "key-file", "server-name"} {
		cmd.MarkFlagsMutuallyExclusive("sink", ofFile)
	}
	for _, ofSink := range []string{"yes", "dry-run", "why"} {
		cmd.MarkFlagsMutuallyExclusive("file", ofSink)
	}
	for _, part := range []string{"db", "coll"} {
		cmd.MarkFlagsMutuallyExclusive("namespace", part)
	}
	return cmd
}

// throughSink moves a sink back.
func (o *replay) throughSink(cmd *cobra.Command, args []string) error {
	if err := checkTarget(o.from); err != nil {
		return err
	}
	return o.run(cmd, args, func(ctx context.Context, conn *backend.Conn, _ []string, w io.Writer) error {
		return o.rewind(ctx, conn, rewinding{subscriber: subscriberOf(conn.Config, o.sink), to: o.from, why: o.why}, w)
	})
}

// subscriberOf returns the name of a sink's subscriber. The operator's configuration need not have
// the sink.
func subscriberOf(cfg config.Config, sink string) string {
	if i := slices.IndexFunc(cfg.Sinks, func(s config.Sink) bool { return s.Name == sink }); i >= 0 {
		return cfg.Sinks[i].Subscriber()
	}
	if streamer.Reserved(sink) {
		return sink
	}
	return "sink/" + sink
}

// A replayed is the outcome of a replay into a file.
type replayed struct {
	File    string    `json:"file"`
	From    string    `json:"from"`
	To      time.Time `json:"to"`
	Changes int       `json:"changes"`
	Bytes   int64     `json:"bytes"`
	// Begins says where the log begins if that is later than From.
	Begins string `json:"begins,omitempty"`
	// Losses are the stretches in which changes may be missing.
	Losses []json.RawMessage `json:"losses"`
}

// intoFile writes the stretch into a file.
func (o *replay) intoFile(cmd *cobra.Command) error {
	if err := o.validate(); err != nil {
		return err
	}
	query, result, err := o.stretch(time.Now())
	if err != nil {
		return err
	}
	o.client.file = o.command.file
	out, err := newWholeFile(o.into, o.force)
	if err != nil {
		return err
	}
	defer out.discard()
	w := &replayWriter{result: result, out: out, bar: progress{w: cmd.ErrOrStderr(), unit: "seconds of the log", every: linesEvery}}
	t := &tail{query: query, client: o.client, notes: Terminal{cmd.ErrOrStderr()}, take: w.take}
	err = t.run(cmd.Context())
	w.bar.end()
	if err == nil {
		err = context.Cause(cmd.Context())
	}
	if err == nil {
		err = out.publish()
	}
	if err != nil {
		return err
	}
	if err := o.print(Terminal{cmd.OutOrStdout()}, result, result.write); err != nil {
		return err
	}
	return result.fault()
}

// stretch returns the query for the stretch, and the result without changes yet.
func (o *replay) stretch(now time.Time) (url.Values, *replayed, error) {
	if db, coll, found := strings.Cut(o.namespace, "."); o.namespace != "" {
		if db == "" || found && coll == "" {
			return nil, nil, fault.Newf(fault.CommandBadArgument, "--namespace %q: write DB.COLL, or DB", o.namespace)
		}
		o.selects.db = db
		o.selects.coll = coll
	}
	end := now
	if o.to != "" {
		var err error
		if end, err = admin.ParseTime(o.to, now); err != nil {
			return nil, nil, fault.Newf(fault.CommandBadArgument, "--to %q: %w", o.to, err)
		}
	}
	begin := o.from
	if begin != admin.Earliest {
		at, err := admin.ParseTime(begin, now)
		if err != nil {
			return nil, nil, fault.Newf(fault.CommandBadArgument, "--from %q: %s, or %w", o.from, admin.Earliest, err)
		}
		if !at.Before(end) {
			return nil, nil, fault.Newf(fault.CommandBadArgument, "--from %s is not before --to %s", at.UTC().Format(time.RFC3339), end.UTC().Format(time.RFC3339))
		}
		begin = at.UTC().Format(time.RFC3339)
	}
	end = end.UTC().Truncate(time.Second)
	query := url.Values{"start": {begin}, "end": {end.Format(time.RFC3339)}}
	o.selects.set(query)
	return query, &replayed{File: o.into, From: begin, To: end, Losses: []json.RawMessage{}}, nil
}

// A replayWriter writes the events of a node.
type replayWriter struct {
	result *replayed
	out    *wholeFile
	bar    progress
	first  time.Time // of the log that is shown as done
}

// take writes a change, or a loss in its place.
func (w *replayWriter) take(m sse.Message) error {
	var of struct {
		event

		Message  string
		LostFrom json.RawMessage `json:"lost_from"`
	}
	if err := json.Unmarshal(m.Data, &of); err != nil {
		return fmt.Errorf("read event: %w", err)
	}
	switch {
	case m.Event == "begin":
		w.result.Begins = of.Message
		return nil
	case m.Event != "" && of.LostFrom == nil:
		return nil // about the connection
	case m.Event != "":
		w.result.Losses = append(w.result.Losses, m.WithID())
	default:
		w.result.Changes++
		w.advance(time.Unix(int64(of.Time.Timestamp.T), 0))
	}
	n, err := w.out.line(m.WithID())
	w.result.Bytes += n
	return err
}

// advance shows how far the log has been read.
func (w *replayWriter) advance(at time.Time) {
	if w.first.IsZero() {
		w.first = at // if it begins with the log
		if begin, err := time.Parse(time.RFC3339, w.result.From); err == nil {
			w.first = begin
		}
	}
	w.bar.show(int(at.Sub(w.first).Seconds()), int(w.result.To.Sub(w.first).Seconds()))
}

// write writes the outcome for people.
func (r *replayed) write(t *tabwriter.Writer) {
	fmt.Fprintf(t, "%d changes from %s to %s are in %s (%s).\n", r.Changes, r.From, r.To.Format(time.RFC3339), printable(r.File), formatBytes(r.Bytes))
}

// fault returns what of the stretch may be missing, nil if nothing is.
func (r *replayed) fault() error {
	var missing []string
	if r.Begins != "" {
		missing = append(missing, r.Begins)
	}
	for _, text := range r.Losses {
		var l struct {
			Reason string    `json:"reason"`
			Names  []string  `json:"namespaces"`
			From   clockTime `json:"lost_from"`
			To     clockTime `json:"lost_to"`
		}
		if err := json.Unmarshal(text, &l); err != nil {
			return fmt.Errorf("read loss: %w", err)
		}
		what := "of all collections"
		if len(l.Names) > 0 {
			what = "of " + strings.Join(l.Names, ", ")
		}
		missing = append(missing, fmt.Sprintf("changes %s from %s to %s may be missing (%s)", what, l.From, l.To, l.Reason))
	}
	if len(missing) == 0 {
		return nil
	}
	return badResult{fault.Newf(fault.LogHistoryLost, "the stretch is not whole: %s", printable(strings.Join(missing, "; ")))}
}

// A clockTime is a cluster time in Extended JSON.
type clockTime struct {
	Timestamp struct{ T uint32 } `json:"$timestamp"`
}

// String returns its time as people read it.
func (c clockTime) String() string { return formatTime(time.Unix(int64(c.Timestamp.T), 0)) }

// A wholeFile is a file that appears under its name when it is complete, with mode 0600.
type wholeFile struct {
	name  string
	force bool
	temp  *os.File // has a name of its own
	w     *bufio.Writer

	link       func(from, to string) error // os.Link
	syncFolder func(name string) error     // syncFolder
}

// newWholeFile begins a file. A folder is the fault CommandBadArgument, and so is a file that
// exists, unless force is set.
func newWholeFile(name string, force bool) (*wholeFile, error) {
	switch info, err := os.Lstat(name); {
	case err == nil && info.IsDir():
		return nil, fault.Newf(fault.CommandBadArgument, "%s is a folder: write the name of a file", name)
	case err == nil && !force:
		return nil, fault.Newf(fault.CommandBadArgument, "%s exists: choose another name, or --force", name)
	}
	temp, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*.tmp")
	if err != nil {
		return nil, fault.New(fault.CommandBadArgument, err)
	}
	return &wholeFile{name: name, force: force, temp: temp, w: bufio.NewWriterSize(temp, 256<<10), link: os.Link, syncFolder: syncFolder}, nil
}

// line writes a line and returns how many bytes it has.
func (f *wholeFile) line(text []byte) (int64, error) {
	_, _ = f.w.Write(text) // the last write returns the error
	if err := f.w.WriteByte('\n'); err != nil {
		return 0, fmt.Errorf("write %s: %w", f.name, err)
	}
	return int64(len(text)) + 1, nil
}

// publish gives the file its name. It never replaces a file that has come meanwhile, unless force
// is set.
func (f *wholeFile) publish() error {
	temp := f.temp.Name()
	if err := errors.Join(f.w.Flush(), f.temp.Sync()); err != nil {
		return fmt.Errorf("write %s: %w", f.name, err)
	}
	var err error
	if f.force {
		err = os.Rename(temp, f.name)
	} else if err = f.link(temp, f.name); err != nil && !errors.Is(err, fs.ErrExist) {
		err = f.reserve(temp) // the file system may have no links
	}
	if errors.Is(err, fs.ErrExist) {
		return fault.Newf(fault.CommandBadArgument, "%s exists meanwhile: choose another name, or --force", f.name)
	}
	if err != nil {
		return fmt.Errorf("name %s: %w", f.name, err)
	}
	if err := f.syncFolder(filepath.Dir(f.name)); err != nil && !cannotSync(err) {
		return fmt.Errorf("%s is complete, but may not outlive a crash of the machine: %w", f.name, err)
	}
	return nil
}

// reserve gives the file its name where there are no links: an empty file has the name until it is
// replaced.
func (f *wholeFile) reserve(temp string) error {
	empty, err := os.OpenFile(f.name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_ = empty.Close() // nothing was written
	if err := os.Rename(temp, f.name); err != nil {
		return errors.Join(err, os.Remove(f.name))
	}
	return nil
}

// syncFolder makes the names in a folder durable.
func syncFolder(name string) error {
	folder, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// cannotSync reports whether an error of syncFolder says that the file system or the rights do not
// allow it.
func cannotSync(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL)
}

// discard removes the rest of the temporary file.
func (f *wholeFile) discard() {
	_ = f.temp.Close()
	_ = os.Remove(f.temp.Name()) // it has another name by then
}
