package operator

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/handoff"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/retry"
)

// How often a node is asked how far something is, how long it may stay silent meanwhile, and how
// long it tries to move a partition.
const (
	lookEvery    = 250 * time.Millisecond
	maxSilence   = 20 * time.Second
	nodeTriesFor = time.Minute + 10*time.Second
)

// readStatus reads a node's view of its cluster.
func readStatus(ctx context.Context, node *nodeClient) (s admin.Status, err error) {
	return s, node.ask(ctx, http.MethodGet, "v1/status", nil, &s)
}

// awaitStatus reads the status until over returns true, or until the timeout. It retries a node
// that does not answer for up to maxSilence. The node's data about other nodes is some heartbeats
// old.
func awaitStatus(ctx context.Context, node *nodeClient, patience time.Duration, over func(admin.Status) bool) (bool, error) {
	begun := time.Now()
	answered := begun
	for {
		s, err := readStatus(ctx, node)
		switch {
		case err == nil && over(s):
			return true, nil
		case err == nil:
			answered = time.Now()
		case fault.Of(err) != fault.NodeUnreachable && fault.Of(err) != fault.NodeStopping:
			return false, err
		case time.Since(answered) > min(patience, maxSilence):
			return false, fmt.Errorf("the leader continues, but how far it is cannot be read: %w", err)
		}
		if time.Since(begun) > patience {
			return false, err
		}
		if err := retry.Sleep(ctx, lookEvery); err != nil {
			return false, err
		}
	}
}

// drainAtNode drains a node, or undoes that, through one of the cluster's nodes.
func drainAtNode(ctx context.Context, o *command, name string, patience time.Duration, undo bool, w io.Writer) error {
	path := "v1/nodes/" + url.PathEscape(name)
	var accepted admin.Accepted
	if undo {
		if err := o.ask(fmt.Sprintf("Assign node %s its share of the partitions again?", quoted(name))); err != nil {
			return err
		}
		if err := o.node.ask(ctx, http.MethodPost, path+"/undrain", nil, &accepted); err != nil {
			return err
		}
		return o.print(w, drained{DrainResult: handoff.DrainResult{Node: name}}, func(t *tabwriter.Writer) {
			fmt.Fprintf(t, "Node %s gets its share of the partitions again.\n", quoted(name))
		})
	}
	before, err := readStatus(ctx, o.node)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(before.Nodes, func(n admin.StatusNode) bool { return n.Node == name })
	if i < 0 {
		return fault.Newf(fault.HandoffUnknown, "node %q", name)
	}
	done := handoff.DrainResult{Node: name, Had: before.Nodes[i].Owned, Left: -1}
	if err := o.ask(fmt.Sprintf("Move the %d partitions of node %s to other nodes, and assign it none until --undo?", done.Had, quoted(name))); err != nil {
		return err
	}
	if err := o.node.ask(ctx, http.MethodPost, path+"/drain", nil, &accepted); err != nil {
		return err
	}
	begun := time.Now()
	bar := progress{w: w, unit: "partitions"}
	over, err := awaitStatus(ctx, o.node, patience, func(s admin.Status) bool {
		i := slices.IndexFunc(s.Nodes, func(n admin.StatusNode) bool { return n.Node == name })
		if done.Gone = i < 0; done.Gone {
			done.Left = 0
			return true
		}
		n := s.Nodes[i]
		if n.Owned != done.Left && o.output == "" {
			bar.left(n.Owned)
		}
		done.Left = n.Owned
		return n.Drained && n.Owned == 0 && n.Planned == 0
	})
	bar.end()
	if err != nil {
		return err
	}
	done.TookMS = time.Since(begun).Milliseconds()
	if !over {
		return fault.Newf(fault.DrainUnfinished, "node %q has %d partitions after %s; the leader continues", name, done.Left, patience)
	}
	return o.print(w, drained{DrainResult: done, Wished: true}, func(t *tabwriter.Writer) { writeDrained(t, done) })
}

// A moved is a handoff that a node did.
type moved struct {
	Partition int    `json:"partition"`
	From      string `json:"from"`
	To        string `json:"to"`
}

// handoffAtNode moves a partition through one of the cluster's nodes.
func handoffAtNode(ctx context.Context, o *command, to, partition string, w io.Writer) error {
	if to == "" {
		return fault.Newf(fault.CommandBadArgument, "--to is missing: name the node that takes the partition")
	}
	for _, flag := range []string{"for", "allow-older"} {
		if o.cmd.Flags().Changed(flag) {
			return fault.Newf(fault.CommandBadArgument, "--%s needs the configuration of the nodes: give -f, and no --address", flag)
		}
	}
	before, err := readStatus(ctx, o.node)
	if err != nil {
		return err
	}
	m := moved{To: to}
	_, err = fmt.Sscanf(partition, "%d", &m.Partition)
	isNumber := err == nil && fmt.Sprint(m.Partition) == partition
	if !isNumber || m.Partition < 0 || m.Partition >= len(before.Partitions.Owners) {
		return fault.Newf(fault.CommandBadArgument, "there is no partition %q: they are numbered from 0 to %d", partition, len(before.Partitions.Owners)-1)
	}
	m.From = ownerOf(before, m.Partition)
	if err := o.ask(fmt.Sprintf("Hand partition %d over from node %s to node %s?", m.Partition, orDash(m.From), quoted(to))); err != nil {
		return err
	}
	var accepted admin.Accepted
	if err := o.node.ask(ctx, http.MethodPost, "v1/partitions/"+partition+"/handoff", url.Values{"to": {to}}, &accepted); err != nil {
		return err
	}
	over, err := awaitStatus(ctx, o.node, nodeTriesFor, func(s admin.Status) bool {
		return m.Partition < len(s.Partitions.Owners) && ownerOf(s, m.Partition) == to
	})
	switch {
	case err != nil:
		return err
	case !over:
		return fault.Newf(fault.HandoffAbandoned, "partition %d is not at node %q after %s", m.Partition, to, nodeTriesFor)
	}
	return o.print(w, m, func(t *tabwriter.Writer) {
		fmt.Fprintf(t, "Partition %d has moved from node %s to node %s.\n", m.Partition, orDash(m.From), to)
	})
}

// ownerOf returns the node that owns a partition, "" for nobody.
func ownerOf(s admin.Status, partition int) string {
	if i := s.Partitions.Owners[partition]; i >= 0 && i < len(s.Nodes) {
		return s.Nodes[i].Node
	}
	return ""
}

// A detailed is a subscriber as a node shows it, and whether it was deleted.
type detailed struct {
	admin.SubscriberDetail

	// Session is the nodes at which the subscriber has a session.
	Session string `json:"connected_at,omitempty"`
	Done    bool   `json:"done"`
}

// readDetail reads what a node knows about a subscriber.
func readDetail(ctx context.Context, o *command, subscriber string) (d detailed, err error) {
	for _, flag := range []string{"partition", "all"} {
		if o.cmd.Flags().Changed(flag) {
			return d, fault.Newf(fault.CommandBadArgument, "--%s needs the configuration of the nodes: give -f", flag)
		}
	}
	d.Session = strings.Join(connectedAt(ctx, o.node)[subscriber], ", ")
	return d, o.node.ask(ctx, http.MethodGet, "v1/subscribers/detail", url.Values{"subscriber": {subscriber}}, &d.SubscriberDetail)
}

// showAtNode shows a subscriber.
func showAtNode(ctx context.Context, o *command, subscriber string, w io.Writer) error {
	d, err := readDetail(ctx, o, subscriber)
	if err != nil {
		return err
	}
	return cmp.Or(o.print(w, d, d.write), unread(d.Error))
}

// unread is the error of a node that answers, and cannot read some or all checkpoints; nil for no
// text.
func unread(text string) error {
	if text == "" {
		return nil
	}
	return fmt.Errorf("the node cannot read the checkpoints: %s", text)
}

// deleteAtNode deletes the checkpoints of a subscriber through one of the cluster's nodes.
func deleteAtNode(ctx context.Context, o *command, subscriber string, w io.Writer) error {
	d, err := readDetail(ctx, o, subscriber)
	if err != nil {
		return err
	}
	question := fmt.Sprintf("Delete the checkpoints of subscriber %s, and their history?", quoted(subscriber))
	if d.Session != "" {
		question = fmt.Sprintf("Subscriber %s is connected at node %s, and its session ends. %s", quoted(subscriber), printable(d.Session), question)
	}
	if err := o.decide(ctx, w, d, d.write, nil, question); err != nil {
		return err
	}
	var accepted admin.Accepted
	if err := o.node.ask(ctx, http.MethodPost, "v1/subscribers/delete", url.Values{"subscriber": {subscriber}}, &accepted); err != nil {
		return err
	}
	d.Done = true
	return o.print(w, d, d.write)
}

// write writes a subscriber, or that its checkpoints were deleted.
func (d detailed) write(t *tabwriter.Writer) {
	if d.Done {
		fmt.Fprintf(t, "The checkpoints of subscriber %s are deleted.\n", quoted(d.Subscriber))
		return
	}
	connected := orDash(printable(d.Session))
	if d.Kind == admin.Shared {
		connected = atOwners
	}
	fmt.Fprintf(t, "subscriber\t%s\nkind\t%s\nconnected\t%s\n", quoted(d.Subscriber), orDash(string(d.Kind)), connected)
	if d.Error != "" {
		fmt.Fprintf(t, "unreadable\t%s\n", printable(d.Error))
	}
	if len(d.Places) == 0 {
		return
	}
	fmt.Fprintf(t, "\nthe %d earliest of %d positions:\nPARTITION\tPOSITION\tTIME\n", len(d.Places), d.PlacesTotal)
	for _, p := range d.Places {
		partition := "all others"
		if p.Partition != nil {
			partition = fmt.Sprint(*p.Partition)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", partition, p.Position, formatTime(p.Position.Time))
	}
	fmt.Fprint(t, "\nthe last checkpoints, the newest first:\nSAVED\tGENERATION\tPOSITION\tTIME\tREASON\tBY\n")
	for _, c := range d.History {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\n", formatTime(c.At), c.Generation, c.Position, formatTime(c.Position.Time), printable(string(c.Reason)), quoted(c.By))
	}
}
