package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/admin"
	"github.com/mongostream/streamer/internal/backend"
	"github.com/mongostream/streamer/internal/mongodb"
	"github.com/mongostream/streamer/retention"
)

// A forgottenChain is the outcome of an erasure in a chain.
type forgottenChain struct {
	Chain string `json:"chain"`
	// Done is false in a plan.
	Done bool `json:"done"`
	retention.Forgetting
}

func forgetRetained() *cobra.Command {
	var o retained
	var namespace, before string
	var ids []string
	long := `Erase the changes of a collection, or of some of its documents (--id), before a time from all segments, also from expired ones: each segment that
has any is written again without them. It shows what it would erase, and asks. Subscribers that read such a stretch get a loss of the namespace with the
reason "forgotten", and everything else. A record of the erasure without _ids stays in the store (v1/SOURCE/INCARNATION/forgotten). Run it as the
user of the node, whose files they are; the node may run. Erase the documents in MongoDB first: the newest changes are in the oplog only, and
are written later. A bucket must honour If-Match and keep no versions.

  streamer retention forget --namespace shop.customers --id alice --before now --dry-run
  streamer retention forget --namespace shop.sessions --before 2026-01-01T00:00:00Z`
	cmd := o.build("forget", "Erase changes from the retained log", long, cobra.NoArgs,
		func(ctx context.Context, store backend.Retained, chains, _ []string, w io.Writer) error {
			e, err := erasureOf(namespace, before, ids)
			if err != nil {
				return err
			}
			plan, err := o.forget(ctx, store, chains, e, false)
			if err != nil {
				return err
			}
			if o.dryRun {
				return o.printForgotten(w, plan)
			}
			done, err := o.forgetPlanned(ctx, plan, chains, namespace, e)
			if err != nil {
				return err
			}
			return o.printForgotten(w, done)
		})
	flags := cmd.Flags()
	flags.StringVar(&namespace, "namespace", "", "the collection, DB.COLL")
	flags.StringArrayVar(&ids, "id", nil, "only the document with this _id: Extended JSON, 24 hexadecimal digits, or a plain text; may be repeated")
	flags.StringVar(&before, "before", "", "only changes before this time ("+admin.TimeForms+")")
	return o.planFlags(cmd)
}

// forgetPlanned asks, records the planned erasure in the audit log of each chain, and erases.
func (o *retained) forgetPlanned(ctx context.Context, plan []forgottenChain, chains []string, namespace string, e retention.Erasure) ([]forgottenChain, error) {
	changes := 0
	for _, c := range plan {
		changes += c.Changes
		if err := o.checkOwner(c.Chain); err != nil { // also where nothing is erased: a lock is written
			return nil, err
		}
	}
	if err := o.ask(fmt.Sprintf("Erase %d changes of %s before %s for ever?", changes, namespace, formatTime(e.Before.Time()))); err != nil {
		return nil, err
	}
	writable, err := backend.OpenRetained(o.store)
	if err != nil {
		return nil, storeFault(err)
	}
	defer writable.Close() //nolint:errcheck // nothing is left to write
	arguments := []string{"--namespace=" + namespace, "--before=" + e.Before.Time().UTC().Format(time.RFC3339), fmt.Sprintf("(%d documents)", len(e.Documents))}
	if len(e.Documents) == 0 {
		arguments[2] = "(all documents)"
	}
	for _, c := range plan { // also where nothing is planned: more may have been written since
		if err := o.record(ctx, writable, c.Chain, "forget", append(arguments, fmt.Sprintf("(%d changes)", c.Changes))...); err != nil {
			return nil, err
		}
	}
	return o.forget(ctx, writable, chains, e, true)
}

// erasureOf parses the flags of an erasure.
func erasureOf(namespace, before string, ids []string) (e retention.Erasure, err error) {
	db, coll, found := strings.Cut(namespace, ".")
	if !found || db == "" || coll == "" {
		return e, fault.Newf(fault.CommandBadArgument, "--namespace %q: write DB.COLL", namespace)
	}
	at := time.Now()
	if before != "now" {
		if before == "" {
			return e, fault.Newf(fault.CommandBadArgument, "--before is missing: name a time, or now")
		}
		if at, err = admin.ParseTime(before, time.Now()); err != nil {
			return e, fault.Newf(fault.CommandBadArgument, "--before %q: %w", before, err)
		}
	}
	e = retention.Erasure{Namespace: change.Namespace{DB: db, Coll: coll}, Before: change.Timestamp{T: uint32(at.Unix())}}
	for _, text := range ids {
		id, err := mongodb.ParseID(text)
		if err != nil {
			return e, fault.Newf(fault.CommandBadArgument, "--id %s: %w", text, err)
		}
		e.Documents = append(e.Documents, string(change.AppendCanonical(nil, id)))
	}
	return e, nil
}

// forget erases changes of chains, or only counts them.
func (o *retained) forget(ctx context.Context, store retention.Store, chains []string, e retention.Erasure, do bool) (all []forgottenChain, err error) {
	all = []forgottenChain{}
	for _, folder := range chains {
		f, err := retention.ChainAt(store, folder).Forget(ctx, e, operatorName(), do)
		switch {
		case errors.Is(err, retention.ErrImmutable):
			return nil, fault.Newf(fault.CommandBadArgument, "the store cannot replace segments: let them expire with streamer retention prune")
		case err != nil:
			return nil, storeFault(err)
		}
		all = append(all, forgottenChain{Chain: folder, Done: do, Forgetting: f})
	}
	return all, nil
}

// printForgotten writes outcomes; segments that cannot be read are a bad result.
func (o *retained) printForgotten(w io.Writer, all []forgottenChain) error {
	damaged := 0
	for _, c := range all {
		damaged += len(c.Unreadable)
	}
	err := o.print(w, all, func(t *tabwriter.Writer) {
		if len(all) == 0 {
			fmt.Fprintln(t, "The store has no retained log.")
		}
		for _, c := range all {
			verb := "would be"
			if c.Done {
				verb = "were"
			}
			fmt.Fprintf(t, "%s: %d changes in %d segments %s erased; changes from %s on are not written yet\n", printable(c.Chain), c.Changes, c.Segments, verb, formatTime(c.To.Time()))
			for _, f := range c.Unreadable {
				fmt.Fprintf(t, "segment %d\tstays as it is: %s\n", f.Segment, printable(f.Problem))
			}
		}
	})
	if err == nil && damaged > 0 {
		err = badResult{fmt.Errorf("%d segments cannot be read, and may still have such changes: expire them with streamer retention prune", damaged)}
	}
	return err
}
