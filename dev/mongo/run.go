package devmongo

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/oplog"
	"github.com/mongostream/streamer/dev/mongo/query"
	"github.com/mongostream/streamer/dev/mongo/store"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// command is the implementation of one command.
type command struct {
	// run appends the reply's elements.
	run func(ctx context.Context, r *request, b *doc.Builder) error
	// fields are those that it knows besides the general ones; nil is any.
	fields []string
	// named: its own value names a collection, which becomes the request's ns.
	named bool
	// writes: it may have to wait for its write concern.
	writes bool
	// retryable: it may carry a transaction number outside of a transaction.
	retryable bool
	// transactional: it may run in a transaction.
	transactional bool
}

// run carries the command out.
func (r *request) run(ctx context.Context, cmd command, b *doc.Builder) error {
	if r.numbered {
		r.session.Lock()
		defer r.session.Unlock()
	}
	if err := r.served(cmd); err != nil {
		return err
	}
	if err := r.begin(cmd); err != nil {
		return err
	}
	if err := r.settle(ctx, cmd); err != nil {
		return err
	}
	before := r.oplog.Applied()
	if err := r.perform(ctx, cmd, b); err != nil {
		if r.inTxn && cmd.transactional {
			r.session.Fail()
		}
		return err
	}
	if cmd.writes && !r.inTxn || r.name == "commitTransaction" {
		return r.concern(ctx, b, before)
	}
	return nil
}

func (r *request) perform(ctx context.Context, cmd command, b *doc.Builder) (err error) {
	if cmd.fields != nil {
		err = r.only(cmd.fields...)
	}
	if err == nil && cmd.named {
		r.ns, err = r.collection()
	}
	if err != nil {
		return err
	}
	return cmd.run(ctx, r, b)
}

// served refuses commands that the user may not run, and those that a secondary does not serve:
// writes, and reads whose read preference does not permit secondaries.
func (r *request) served(cmd command) error {
	if err := r.authorize(); err != nil {
		return err
	}
	if r.db == "local" && (r.profile.DenyLocal || r.profile.Mongos) {
		return wire.Errorf(wire.Unauthorized, "not authorized on local to execute command %s", doc.Text(r.body))
	}
	if r.config.Primary == "" {
		return nil
	}
	mode, _ := doc.Path(r.body, "$readPreference.mode")
	preference, _ := mode.StringValueOK()
	switch reads := r.name == "find" || r.name == "aggregate"; {
	case cmd.writes:
		return wire.Errorf(wire.NotPrimary, "not master")
	case reads && (preference == "" || preference == "primary"):
		return wire.Errorf(wire.NotPrimaryNoSecondaryOk, "not master and slaveOk=false")
	}
	return nil
}

// begin starts or continues the transaction or retryable write of the transaction number.
func (r *request) begin(cmd command) (err error) {
	switch {
	case !r.numbered || r.name == "commitTransaction" || r.name == "abortTransaction":
		return nil
	case r.inTxn && !cmd.transactional:
		return wire.Errorf(263, "Cannot run '%s' in a multi-document transaction.", r.name)
	case r.inTxn && r.starts:
		r.txn, err = r.session.Start(r.number)
	case r.inTxn:
		r.txn, err = r.session.Continue(r.number)
	case cmd.retryable:
		var own *oplog.Session
		own, err = r.session.Retryable(r.number)
		r.writer.Session = own
	default:
		return wire.Errorf(50768, "The '%s' command does not support retryable writes", r.name)
	}
	r.writer.Txn = r.txn
	return err
}

// patiently repeats f, one statement, while a transaction has locked its documents.
func (r *request) patiently(ctx context.Context, f func() error) error {
	const lifetime = time.Minute // of a transaction
	for {
		err := f()
		busy, ok := errors.AsType[*store.Busy](err)
		if !ok {
			return err
		}
		wait := lifetime - busy.Age()
		expires := !r.limit.IsZero() && time.Until(r.limit) < wait
		if expires {
			wait = time.Until(r.limit)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-busy.Ended():
		case <-timer.C:
			if expires {
				return wire.Errorf(wire.MaxTimeMSExpired, "operation exceeded time limit")
			}
			r.store.Abort(busy.Txn)
		}
		timer.Stop()
	}
}

// pause waits, unless ctx ends before.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// settle makes a read with majority concern read the majority-committed state. If the majority lags
// by itself, the read sees an old version; if a test holds it for long, there are no old versions,
// so the read waits until it has caught up.
func (r *request) settle(ctx context.Context, cmd command) error {
	concern, err := r.document("readConcern")
	if err != nil || concern == nil || cmd.writes {
		return err
	}
	if after, ok := doc.Field(concern, "afterClusterTime"); ok && r.oplog.Shards() > 0 {
		r.catchUp(query.Timestamp(after))
	}
	level, _ := doc.Field(concern, "level")
	if at, ok := doc.Field(concern, "atClusterTime"); ok {
		return r.settleAt(ctx, query.Timestamp(at), level.StringValue())
	}
	switch text, _ := level.StringValueOK(); text {
	case "majority", "linearizable", "snapshot":
		at := r.oplog.Applied()
		if text == "majority" && r.oplog.Lags() {
			after, _ := doc.Field(concern, "afterClusterTime")
			at = query.Timestamp(after)
		}
		if _, streams := r.changeStream(); !streams && !r.committed(ctx, at, r.limit) {
			return wire.Errorf(wire.MaxTimeMSExpired, "operation exceeded time limit")
		}
		if text == "majority" && r.oplog.Lags() {
			r.asOf = r.oplog.Committed()
		}
		return nil
	case "", "local", "available":
		return nil
	default:
		return wire.Errorf(wire.FailedToParse, "unrecognized readConcern level: %s", text)
	}
}

// catchUp makes servers write no-ops until they have reached the time of a read after it: the
// config servers, or the shards, because each shard has documents of all collections.
func (r *request) catchUp(after uint64) {
	note := doc.New().Int32("noop write for afterClusterTime read concern", 1).Document()
	for server := range r.oplog.Shards() + 1 { // the config servers come last
		if (server == r.oplog.Shards()) == (r.db == "config") {
			r.oplog.NoteOn(server, note, after)
		}
	}
}

// settleAt makes a read outside a transaction read at a cluster time, as servers do since 5.0.
func (r *request) settleAt(ctx context.Context, ts uint64, level string) error {
	switch {
	case level != "snapshot":
		return wire.Errorf(wire.InvalidOptions, "readConcern.atClusterTime must be specified with level 'snapshot'")
	case !r.profile.Release.Since(oplog.R60) || r.inTxn || r.name != "find":
		return wire.Errorf(wire.InvalidOptions, "read concern atClusterTime is not supported here")
	case ts > r.oplog.ClusterTime():
		return wire.Errorf(wire.InvalidOptions, "readConcern atClusterTime value must not be greater than the current clusterTime")
	case !r.committed(ctx, min(ts, r.oplog.Applied()), r.limit):
		return wire.Errorf(wire.MaxTimeMSExpired, "operation exceeded time limit")
	}
	n, err := r.collection()
	if err != nil {
		return err
	}
	switch remembers, catalog := r.store.Remembers(n, ts); {
	case catalog:
		return wire.Errorf(246, "Unable to read from a snapshot due to pending collection catalog changes; please retry the operation.")
	case !remembers:
		return wire.Errorf(239, "Read timestamp is older than the oldest available timestamp")
	}
	r.asOf = ts
	return nil
}

// committed waits until the cluster time is majority-committed, the limit is over (zero is none) or
// ctx ends.
func (r *request) committed(ctx context.Context, ts uint64, limit time.Time) bool {
	if r.oplog.Committed() < ts {
		r.oplog.Flush() // a waiting request makes the server write the journal
	}
	for r.oplog.Committed() < ts {
		changed := r.oplog.Waiting(r.oplog.Seek(ts), false)
		if r.oplog.Committed() >= ts {
			break
		}
		if !await(ctx, changed, limit) {
			return false
		}
	}
	return true
}

// await waits for the channel; it reports false when the limit is over (zero is none) or ctx ends
// before.
func await(ctx context.Context, changed <-chan struct{}, limit time.Time) bool {
	var over <-chan time.Time
	if !limit.IsZero() {
		timer := time.NewTimer(time.Until(limit))
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-changed:
		return true
	case <-over:
		return false
	case <-ctx.Done():
		return false
	}
}

// concern makes a write wait as its write concern says. before is the newest cluster time before
// the write.
func (r *request) concern(ctx context.Context, b *doc.Builder, before uint64) error {
	c, err := r.document("writeConcern")
	if err != nil {
		return err
	}
	w, given := doc.Field(c, "w")
	if n, number := doc.Int(w); number && n > 1 {
		b.Open("writeConcernError").Int32("code", 100).String("codeName", "CannotSatisfyWriteConcern")
		b.String("errmsg", "Not enough data-bearing nodes").End()
		return nil
	}
	text, _ := w.StringValueOK()
	majority := text == "majority" || !given && r.profile.Release.Since(oplog.R60)
	ts := r.oplog.Applied()
	isCommitted := ts == before && r.oplog.Committed() >= ts
	if !majority || r.config.Standalone || isCommitted {
		return nil
	}
	limit := r.limit
	if v, ok := doc.Field(c, "wtimeout"); ok {
		if ms, _ := doc.Int(v); ms > 0 {
			limit = time.Now().Add(time.Duration(ms) * time.Millisecond)
		}
	}
	if !r.committed(ctx, r.oplog.Applied(), limit) {
		writeConcernError(b, c)
	}
	return nil
}

func writeConcernError(b *doc.Builder, concern bsoncore.Document) {
	b.Open("writeConcernError").Int32("code", int32(wire.WriteConcernFailed)).String("codeName", wire.WriteConcernFailed.Name())
	b.String("errmsg", "waiting for replication timed out").Open("errInfo").Bool("wtimeout", true)
	if concern != nil {
		b.Doc("writeConcern", concern)
	}
	b.End().End()
}

// succeed ends the reply of a command that worked.
func (r *request) succeed(b *doc.Builder) {
	b.Double("ok", 1)
	if r.config.Standalone {
		return
	}
	if r.profile.BeforeReply != nil {
		r.profile.BeforeReply(r.name, r.namespace())
	}
	r.clusterTime(b)
	b.Timestamp("operationTime", r.operationTime())
}

// fail is the reply of a command that did not. The labels of a fail point replace the server's own,
// unless they are nil.
func (r *request) fail(b *doc.Builder, err error, labels []string) {
	e := wire.ErrorOf(err)
	if labels == nil {
		labels = r.labels(e.Code)
	}
	if len(labels) > 0 {
		b.Strings("errorLabels", labels...)
	}
	first := !r.profile.Release.Since(oplog.R60) && !r.config.Standalone
	if first {
		b.Timestamp("operationTime", r.operationTime())
	}
	b.Double("ok", 0).String("errmsg", e.Message).Int32("code", int32(e.Code)).String("codeName", e.Code.Name()).Raw(e.Extra)
	if r.config.Standalone {
		return
	}
	r.clusterTime(b)
	if !first {
		b.Timestamp("operationTime", r.operationTime())
	}
}

// labels are those that the server itself gives an error.
func (r *request) labels(code wire.Code) []string {
	ends := r.name == "commitTransaction" || r.name == "abortTransaction"
	isGone := code == wire.NoSuchTransaction && r.name != "abortTransaction"
	mayBegin := code == wire.WriteConflict || isGone || !ends && code.Retryable()
	mayRepeat := r.numbered && (!r.inTxn || ends)
	switch {
	case r.inTxn && mayBegin:
		return []string{wire.LabelTransient}
	case mayRepeat && code.Retryable():
		return []string{wire.LabelRetryable}
	case code.NonResumable():
		return []string{wire.LabelNonResumable}
	default:
		return nil
	}
}

func (r *request) operationTime() uint64 {
	if r.streams {
		return r.oplog.Committed()
	}
	return r.oplog.Applied()
}

func (r *request) clusterTime(b *doc.Builder) {
	var hash [20]byte
	b.Open("$clusterTime").Timestamp("clusterTime", r.oplog.ClusterTime())
	b.Open("signature").Binary("hash", 0, hash[:]).Int64("keyId", 0).End().End()
}

// opTime appends a time with the term of the one election that there ever was.
func opTime(b *doc.Builder, name string, ts uint64) {
	b.Open(name).Timestamp("ts", ts).Int64("t", 1).End()
}

// electionID is the same in every run: there is one node.
func electionID() [12]byte {
	return [12]byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1}
}

// elements are those of a document.
func elements(d bsoncore.Document) []byte { return d[4 : len(d)-1] }

// isOplog reports whether a collection is the oplog.
func isOplog(n store.Name) bool { return n == store.Name{DB: "local", Coll: "oplog.rs"} }
