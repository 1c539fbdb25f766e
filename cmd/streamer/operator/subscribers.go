package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/backend"
)

func subscribersCommand() *cobra.Command {
	return alone(listCommand(), "subscribers", "List, show, rewind, delete, export and import subscribers",
		showCommand(), historyCommand(), rewindCommand(), deleteCommand(), exportCommand(), importCommand())
}

// A listing is all subscribers of a cluster.
type listing struct {
	*admin.SubscriberList

	// NodeError says why no node has listed the connected subscribers.
	NodeError string `json:"node_error,omitempty"`
	// ConnectedAt has the nodes at which exclusive subscribers have sessions, as far as nodes have
	// told each other.
	ConnectedAt map[string][]string `json:"connected_at,omitempty"`
}

// A listOptions says which subscribers are shown, in which order, and how much of each.
type listOptions struct {
	sort                 string
	lagging, wide, watch bool
}

// The values of --sort.
const (
	sortName     = "name"
	sortLag      = "lag"
	sortHeadRoom = "head-room"
)

// late is the lag from which --lagging shows a subscriber, in seconds.
const late = 30

// arrange leaves the subscribers that are wanted, in the order that is wanted.
func (l listing) arrange(o listOptions) {
	all := l.Subscribers
	if o.lagging {
		all = slices.DeleteFunc(all, func(s admin.Subscriber) bool { return s.Lag != nil && *s.Lag < late })
	}
	slices.SortStableFunc(all, func(a, b admin.Subscriber) int {
		byName := natural(a.Subscriber, b.Subscriber)
		switch o.sort {
		case sortLag:
			return cmp.Or(cmp.Compare(valueOr(b.Lag, -1), valueOr(a.Lag, -1)), byName)
		case sortHeadRoom:
			return cmp.Or(cmp.Compare(valueOr(a.HeadRoom, math.Inf(1)), valueOr(b.HeadRoom, math.Inf(1))), byName)
		}
		return byName
	})
	l.SubscriberList.Subscribers = all
}

// natural compares names as people do: numbers in them by their size.
func natural(a, b string) int {
	digits := func(s string) int {
		n := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
		if n < 0 {
			return len(s)
		}
		return n
	}
	x := a
	y := b
	for x != "" && y != "" {
		n, m := digits(x), digits(y)
		if n > 0 && m > 0 {
			p, q := strings.TrimLeft(x[:n], "0"), strings.TrimLeft(y[:m], "0")
			if c := cmp.Or(cmp.Compare(len(p), len(q)), strings.Compare(p, q)); c != 0 {
				return c
			}
			x = x[n:]
			y = y[m:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x = x[1:]
		y = y[1:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(a, b))
}

func listCommand() *cobra.Command {
	o := command{outputs: []string{"json", outputWide}}
	var client nodeClient
	var opts listOptions
	// What could not be read is the command's error. With --watch it is shown, because it may be
	// read later.
	show := func(ctx context.Context, l listing, unreadable error, w io.Writer) error {
		if l.NodeError == "" {
			l.ConnectedAt = connectedAt(ctx, &client)
		}
		opts.wide = o.output == outputWide
		l.arrange(opts)
		err := o.print(w, l, func(t *tabwriter.Writer) { l.write(t, opts.wide) })
		if err == nil && unreadable != nil && opts.watch {
			fmt.Fprintln(Terminal{w}, unreadable)
			return nil
		}
		return cmp.Or(err, unreadable)
	}
	cmd := o.build("list", "List all subscribers, connected or not", cobra.NoArgs, func(ctx context.Context, conn *backend.Conn, _ []string, w io.Writer) error {
		all, unread := admin.Subscribers(ctx, conn.Store)
		if unread != nil && (all == nil || len(all.Subscribers) == 0) {
			return unread
		}
		l := listing{SubscriberList: all}
		if err := join(ctx, all, &client); err != nil {
			l.NodeError = err.Error()
		}
		measure(ctx, conn, all)
		return show(ctx, l, unread, w)
	})
	fromStore := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.validate(); err != nil {
			return err
		}
		if !slices.Contains(sorts(), opts.sort) {
			return fault.Newf(fault.CommandBadArgument, "--sort %q: it must be one of %s", opts.sort, strings.Join(sorts(), ", "))
		}
		client.file = o.file
		if _, err := client.locate(); fault.Of(err) == fault.CommandBadArgument {
			return err
		}
		out := cmd.OutOrStdout()
		return look(cmd.Context(), out, opts.watch, func(w io.Writer) error {
			if o.file == "" && !configured(os.Environ()) {
				all, err := readSubscribers(cmd.Context(), &client)
				if err == nil {
					return show(cmd.Context(), listing{SubscriberList: all}, unread(all.Error), w)
				}
				if client.names() || fault.Of(err) != fault.NodeUnreachable {
					return err
				}
			}
			return fromStore(cmd, args)
		})
	}
	cmd.Long = `List all subscribers that have a checkpoint, connected or not: their position, their lag in log time and in entries of all collections
(estimated), and the time until their position leaves the oplog. Checkpoints are read from the store that the configuration names, and a node adds
which subscribers are connected to it. Without a configuration (-f, or variables STREAMER_…) the node answers alone.

  streamer subscribers list --address 127.0.0.1:8080
  streamer subscribers list --sort lag --lagging --watch`
	flags := cmd.Flags()
	flags.StringVar(&opts.sort, "sort", sortName, "order: "+strings.Join(sorts(), ", ")+"; the worst first")
	flags.BoolVar(&opts.lagging, "lagging", false, fmt.Sprintf("only those that are %d s behind or more, or whose lag is unknown", late))
	watchFlag(cmd, &opts.watch)
	complete(cmd, "sort", cobra.FixedCompletions(sorts(), cobra.ShellCompDirectiveNoFileComp))
	client.addFlags(cmd)
	return cmd
}

func sorts() []string { return []string{sortName, sortLag, sortHeadRoom} }

// connectedAt asks a node of the cluster at which nodes subscribers have sessions. It returns nil
// where the node does not tell. The caller has compared the origin of the node's subscribers: a
// status has none, its cluster is only a name from the configuration.
func connectedAt(ctx context.Context, client *nodeClient) map[string][]string {
	s, err := readStatus(ctx, client)
	if err != nil {
		return nil
	}
	at := map[string][]string{}
	for _, n := range s.Nodes {
		for _, name := range n.Gateways {
			at[name] = append(at[name], n.Node)
		}
	}
	return at
}

// join adds a node's sessions.
func join(ctx context.Context, all *admin.SubscriberList, client *nodeClient) error {
	answer, err := readSubscribers(ctx, client)
	if err != nil {
		return err
	}
	if answer.Origin.Cluster != all.Origin.Cluster {
		return client.unreachable(errors.New("it belongs to another cluster, or cannot read its own checkpoints"))
	}
	all.Join(answer)
	return nil
}

// readSubscribers reads the subscribers of a cluster from one of its nodes.
func readSubscribers(ctx context.Context, client *nodeClient) (*admin.SubscriberList, error) {
	var answer admin.SubscriberList
	err := client.ask(ctx, http.MethodGet, "v1/subscribers", nil, &answer)
	return &answer, err
}

// dialTimeout is how long MongoDB may take to be reached where a command can do without it.
const dialTimeout = 5 * time.Second

// measure fills in the lag of the subscribers. Without MongoDB their checkpoints are still shown.
func measure(ctx context.Context, conn *backend.Conn, all *admin.SubscriberList) {
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	source, err := conn.Log(dialing)
	if err != nil {
		all.LogError = err.Error()
		return
	}
	all.Measure(ctx, source)
}

// write writes the subscribers for people.
func (l listing) write(t *tabwriter.Writer, wide bool) {
	if l.Origin.Cluster != "" {
		fmt.Fprintf(t, "cluster %s, %d partitions, incarnation %d, of %s\n", l.Origin.Cluster, l.Origin.Partitions, l.Origin.Incarnation, l.Origin.Source)
	}
	if l.NodeError != "" {
		fmt.Fprintf(t, "connections are unknown: %s\n", l.NodeError)
	}
	if l.LogError != "" {
		fmt.Fprintf(t, "lag is unknown: %s\n", l.LogError)
	}
	if len(l.Subscribers) == 0 {
		fmt.Fprintln(t, "\nThere are no such subscribers with a checkpoint.")
		return
	}
	fmt.Fprint(t, "\nSUBSCRIBER\tKIND\tLAG\tENTRIES BEHIND\tHEAD-ROOM\tCONNECTED")
	if wide {
		fmt.Fprint(t, "\tAT\tGENERATION\tPROCESS\tSAVED")
	}
	fmt.Fprintln(t)
	without := false
	for _, s := range l.Subscribers {
		without = without || s.Without > 0
		position, saved := "-", "-"
		if s.Position != nil {
			position = formatTime(s.Position.Time)
		}
		if s.SavedAt != nil {
			saved = formatTime(*s.SavedAt)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s", quoted(s.Subscriber), s.Kind, orUnknown(s.Lag), estimate(s.Behind), headRoom(s.HeadRoom), l.connected(s))
		if wide {
			fmt.Fprintf(t, "\t%s\t%d\t%s\t%s", position, s.Generation, process(s.Claim), saved)
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintf(t, "\n%s\n", aboutHeadRoom)
	if without {
		fmt.Fprintf(t, "In partitions without a checkpoint a shared subscriber begins at %s.\n", formatTime(l.Origin.Start.Time))
	}
}

// atOwners says where a shared subscriber is connected.
const atOwners = "at the owners of its partitions"

// connected tells whether a subscriber is connected, how, and where.
func (l listing) connected(s admin.Subscriber) string {
	state := connected(s)
	switch at := l.ConnectedAt[s.Subscriber]; {
	case s.Session != nil:
		return state + " at " + printable(s.Session.Node)
	case len(at) > 0 && s.Kind != admin.Shared:
		return "yes, at " + printable(strings.Join(at, ", "))
	case s.Kind == admin.Shared && s.Connected == nil:
		return atOwners
	}
	return state
}

// connected returns whether and how a subscriber is connected.
func connected(s admin.Subscriber) string {
	switch {
	case s.Connected == nil:
		return "unknown"
	case !*s.Connected:
		return "no"
	case s.Session == nil:
		return "yes"
	case s.Session.Overdue:
		return "yes, acknowledges nothing"
	case s.Session.CreditEvents == 0 || s.Session.CreditBytes == 0:
		return "yes, without credit"
	case !s.Session.Live:
		return "yes, catching up"
	}
	return "yes, live"
}

// process returns the process that has a subscriber's name.
func process(c *admin.Claim) string {
	if c == nil {
		return "-"
	}
	text := quoted(c.Process) + " at " + quoted(c.Node)
	if c.Identity != "" {
		text += " as " + quoted(c.Identity)
	}
	return text
}

// partitionFlag adds --partition, of a shared subscriber.
func partitionFlag(cmd *cobra.Command) *[]string {
	return cmd.Flags().StringSlice("partition", nil, "of a shared subscriber: only these partitions")
}

// partitions reads the origin, and numbers of its partitions.
func partitions(ctx context.Context, conn *backend.Conn, texts []string) (all []change.Partition, err error) {
	origin, err := admin.ReadOrigin(ctx, conn.Store)
	if err != nil {
		return nil, err
	}
	for _, text := range texts {
		p, err := admin.ParsePartition(text, origin)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// A checkpointList is the checkpoints of a subscriber, or of its past.
type checkpointList struct {
	Subscriber  string             `json:"subscriber"`
	Checkpoints []admin.Checkpoint `json:"checkpoints"`
}

func showCommand() *cobra.Command {
	var o command
	var only *[]string
	var every bool
	o.node = &nodeClient{}
	o.storesFirst = true
	o.atNode = func(ctx context.Context, args []string, w io.Writer) error { return showAtNode(ctx, &o, args[0], w) }
	cmd := o.build("show NAME", "Show the checkpoints of a subscriber", cobra.ExactArgs(1), func(ctx context.Context, conn *backend.Conn, args []string, w io.Writer) error {
		wanted, err := partitions(ctx, conn, *only)
		if err != nil {
			return err
		}
		all, unread := admin.Find(ctx, conn.Store, args[0], wanted...)
		if len(all) == 0 {
			return unread
		}
		s := checkpointList{Subscriber: args[0], Checkpoints: admin.ShowCheckpoints(all)}
		return cmp.Or(o.print(w, s, func(t *tabwriter.Writer) { s.write(t, every || len(wanted) > 0) }), unread)
	})
	cmd.Long = `Show the checkpoints of a subscriber, from the stores of the configuration (-f, or the environment). Without one a node is asked (--address,
STREAMER_ADDRESS, a context, else the one at 127.0.0.1:8080): it shows where the subscriber is earliest, and its last checkpoints.`
	only = partitionFlag(cmd)
	cmd.ValidArgsFunction = completeFrom(o.node, subscriberNames)
	cmd.Flags().BoolVar(&every, "all", false, "show every partition, not only the latest")
	return cmd
}

// write writes where a subscriber is: every partition of a shared one, or a summary and those that
// are furthest behind.
func (s checkpointList) write(t *tabwriter.Writer, every bool) {
	for _, c := range s.Checkpoints {
		if c.Kind == admin.Shared {
			continue
		}
		fmt.Fprintf(t, "subscriber\t%s\nposition\t%s (%s)\ngeneration\t%d\nprocess\t%s, since %s\nsaved\t%s by %s\nreason\t%s\nfingerprint\t%s\n",
			quoted(c.Subscriber), c.Position, formatTime(c.Position.Time), c.Generation, process(c.Claim), formatTime(c.Claim.Started), formatTime(c.At), quoted(c.By),
			because(c), c.Fingerprint)
		for _, s := range c.Snapshots {
			state := "is complete"
			if !s.Done {
				state = fmt.Sprintf("has %d of about %d documents", s.Read, s.Estimated)
			}
			fmt.Fprintf(t, "snapshot\tof subscription %s %s\n", quoted(s.Subscription), state)
		}
		if len(c.Positions) > 0 {
			fmt.Fprintf(t, "\nof %d partitions elsewhere:\nPARTITION\tPOSITION\tTIME\n", c.Partitions)
		}
		for _, p := range slices.Sorted(maps.Keys(c.Positions)) {
			fmt.Fprintf(t, "%d\t%s\t%s\n", p, c.Positions[p], formatTime(c.Positions[p].Time))
		}
	}
	shared := slices.DeleteFunc(slices.Clone(s.Checkpoints), func(c admin.Checkpoint) bool { return c.Kind != admin.Shared })
	if len(shared) > manyRows && !every {
		slices.SortStableFunc(shared, func(a, b admin.Checkpoint) int { return a.Position.Time.Compare(b.Position.Time) })
		earliest := shared[0].Position.Time
		latest := shared[len(shared)-1].Position.Time
		fmt.Fprintf(t, "subscriber\t%s\npartitions\t%d with a checkpoint, of %d\nearliest\t%s\nlatest\t%s, %s after the earliest\n\nthe %d furthest behind (--all shows every one):\n",
			quoted(s.Subscriber), len(shared), shared[0].Partitions, formatTime(earliest), formatTime(latest), formatDuration(latest.Sub(earliest)), worst)
		shared = shared[:worst]
	}
	if len(shared) > 0 {
		writeCheckpoints(t, shared)
	}
}

// writeCheckpoints writes checkpoints, one a line.
func writeCheckpoints(t *tabwriter.Writer, all []admin.Checkpoint) {
	fmt.Fprintln(t, "PARTITION\tPOSITION\tTIME\tGENERATION\tSAVED\tBY\tREASON")
	for _, c := range all {
		partition := "all"
		if c.Partition != nil {
			partition = fmt.Sprint(*c.Partition)
		}
		fmt.Fprintf(t, "%s of %d\t%s\t%s\t%d\t%s\t%s\t%s\n",
			partition, c.Partitions, c.Position, formatTime(c.Position.Time), c.Generation, formatTime(c.At), quoted(c.By), because(c))
	}
}

// because returns the reason of a checkpoint, and the operator's remark.
func because(c admin.Checkpoint) string {
	if c.Note == "" {
		return string(c.Reason)
	}
	return string(c.Reason) + ": " + quoted(c.Note)
}

func historyCommand() *cobra.Command {
	var o command
	var only *[]string
	cmd := o.build("history NAME", "Show the last checkpoints of a subscriber, the newest first", cobra.ExactArgs(1),
		func(ctx context.Context, conn *backend.Conn, args []string, w io.Writer) error {
			wanted, err := partitions(ctx, conn, *only)
			if err != nil {
				return err
			}
			past, unread := history(ctx, conn.Store, args[0], wanted)
			if len(past) == 0 {
				return unread
			}
			h := checkpointList{Subscriber: args[0], Checkpoints: admin.ShowCheckpoints(past)}
			return cmp.Or(o.print(w, h, func(t *tabwriter.Writer) { writeCheckpoints(t, h.Checkpoints) }), unread)
		})
	cmd.Long = `Show the last checkpoints of a subscriber, the newest first: operators' actions, where sessions and terms have begun and ended, and one a
minute of the others. The history of a partition stays when the partitions are counted anew.`
	only = partitionFlag(cmd)
	cmd.ValidArgsFunction = completeFrom(&nodeClient{}, subscriberNames)
	return cmd
}

// history returns the past of a subscriber, in partitions where some are wanted. Where there is
// none it says that there is no such subscriber.
func history(ctx context.Context, s checkpoint.Store, name string, wanted []change.Partition) (past []checkpoint.Checkpoint, unread error) {
	var keys []checkpoint.Key
	for _, p := range wanted { // whether there is a checkpoint or not: it may have gone
		keys = append(keys, checkpoint.Key{Subscriber: name, Shared: true, Partition: p})
	}
	found, missing := admin.Find(ctx, s, name, wanted...)
	if len(wanted) == 0 {
		for _, c := range found {
			keys = append(keys, c.Key)
		}
		unread = missing
	}
	for _, k := range keys {
		entries, err := s.History(ctx, k)
		past = append(past, entries...)
		unread = errors.Join(unread, err)
	}
	if len(past) == 0 && unread == nil {
		unread = missing
		if missing == nil {
			unread = fault.Newf(fault.CommandBadArgument, "subscriber %q has no history", name)
		}
	}
	return past, unread
}

// A deleted is the plan of a deletion, and whether it was executed.
type deleted struct {
	checkpointList

	// Unread says which checkpoints cannot be read, which go too.
	Unread string `json:"unread,omitempty"`
	// Session is the node at which the subscriber has a session, as far as that is known.
	Session string `json:"connected_at,omitempty"`
	Done    bool   `json:"done"`
}

// claimedAt returns the nodes at which a subscriber has a session, as nodes have told in their
// heartbeats, or the one that was asked; "" for none. The error says why no node of the cluster
// tells.
func claimedAt(ctx context.Context, node *nodeClient, cluster, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	answer, err := readSubscribers(ctx, node)
	if err != nil {
		return "", err
	}
	if answer.Origin.Cluster != cluster {
		return "", errors.New("the node belongs to another cluster")
	}
	if at := connectedAt(ctx, node)[name]; len(at) > 0 {
		return strings.Join(at, ", "), nil
	}
	for _, s := range answer.Subscribers {
		switch {
		case s.Subscriber != name:
		case s.Session != nil:
			return s.Session.Node, nil
		case s.Connected == nil && s.Claim != nil:
			return "", fmt.Errorf("its last session began at node %s, at %s; only that node knows whether it has ended", s.Claim.Node, formatTime(s.Claim.Started))
		}
	}
	return "", nil
}

func deleteCommand() *cobra.Command {
	var o command
	var node nodeClient
	o.node = &node
	o.storesFirst = true
	o.atNode = func(ctx context.Context, args []string, w io.Writer) error { return deleteAtNode(ctx, &o, args[0], w) }
	cmd := o.build("delete NAME", "Delete the checkpoints of a subscriber", cobra.ExactArgs(1),
		func(ctx context.Context, conn *backend.Conn, args []string, w io.Writer) error {
			origin, err := admin.ReadOrigin(ctx, conn.Store)
			if err != nil {
				return err
			}
			all, unread := admin.Find(ctx, conn.Store, args[0])
			d := deleted{checkpointList: checkpointList{Subscriber: args[0], Checkpoints: admin.ShowCheckpoints(all)}}
			switch checkpoint.KindOf(unread) {
			case checkpoint.NoFailure:
			case checkpoint.RowsOwn:
				d.Unread = unread.Error()
			default:
				return unread
			}
			question := fmt.Sprintf("Delete the checkpoints of subscriber %s, and their history?", quoted(args[0]))
			switch d.Session, err = claimedAt(ctx, &node, origin.Cluster, args[0]); {
			case err != nil:
				question = fmt.Sprintf("No node tells whether it is connected: %s. %s", printable(err.Error()), question)
			case d.Session != "":
				question = fmt.Sprintf("Subscriber %s is connected at node %s, and its session ends. %s", quoted(args[0]), printable(d.Session), question)
			}
			if err := o.decide(ctx, w, d, d.write, nil, question); err != nil {
				return err
			}
			if err := conn.Store.Delete(ctx, args[0]); err != nil {
				return err
			}
			d.Done = true
			return o.print(w, d, d.write)
		})
	cmd.Long = `Delete the checkpoints of a subscriber and their history, also those that cannot be read. A subscriber that comes back begins at the positions
that it tells, else as its start policy says. The session that an exclusive one may have ends with its next save; a shared one that is being served gets
checkpoints again where its owners are, and begins at the origin's start after a restart before that.

With a configuration (-f, or the environment) they are deleted in the store, and a node (--address) tells whether the subscriber is connected. Without one a
node deletes them (--address, STREAMER_ADDRESS, a context, else the one at 127.0.0.1:8080).`
	cmd.ValidArgsFunction = completeFrom(&node, subscriberNames)
	return o.planFlags(cmd)
}

// write writes what would be done, or was.
func (d deleted) write(t *tabwriter.Writer) {
	if d.Done {
		fmt.Fprintf(t, "The checkpoints of subscriber %s are deleted.\n", quoted(d.Subscriber))
		return
	}
	d.checkpointList.write(t, false)
	if d.Unread != "" {
		fmt.Fprintf(t, "\nnot to be read, and deleted too: %s\n", strings.ReplaceAll(d.Unread, "\n", "; "))
	}
}
