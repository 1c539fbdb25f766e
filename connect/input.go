package connect

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redpanda-data/benthos/v4/public/service"

	"github.com/mongostream/streamer/client"
)

// An input is the component. It has a client while it is connected or tries to be.
type input struct {
	settings

	log *service.Logger
	meters

	mu struct {
		sync.Mutex
		run     *run  // nil before Connect, and after one that ended
		stopped error // why the input delivers nothing more, nil while it does
	}
}

// meters are the metrics of the input.
type meters struct {
	losses, rewinds, filterFailures *service.MetricCounter
	unacknowledged                  *service.MetricGauge
}

// bareInput makes the input without the engine's wrappers.
func bareInput(conf *service.ParsedConfig, res *service.Resources) (*input, error) {
	s, err := parse(conf, res)
	if err != nil {
		return nil, err
	}
	m := res.Metrics()
	return &input{settings: s, log: res.Logger(), meters: meters{
		losses: m.NewCounter("input_streamer_losses"), rewinds: m.NewCounter("input_streamer_rewinds"), filterFailures: m.NewCounter("input_streamer_filter_failures"),
		unacknowledged: m.NewGauge("input_streamer_unacknowledged"),
	}}, nil
}

// newInput makes the input. The engine's wrappers deliver a rejected batch again, and bound how
// many are under way; a batch that waits for its repetition counts.
func newInput(conf *service.ParsedConfig, res *service.Resources) (service.BatchInput, error) {
	in, err := bareInput(conf, res)
	if err != nil {
		return nil, err
	}
	return service.AutoRetryNacksBatched(service.InputBatchedWithMaxInFlight(in.limit, in)), nil
}

// finalWait is the time between two attempts after an error that trying again does not mend by
// itself.
const finalWait = 5 * time.Second

// Connect implements service.BatchInput. The client reconnects by itself; Connect waits until it
// has a session, and returns why it has none.
func (in *input) Connect(ctx context.Context) error {
	in.mu.Lock()
	if in.mu.stopped != nil {
		defer in.mu.Unlock()
		return in.final(in.mu.stopped)
	}
	if in.mu.run == nil {
		r, err := in.begin() //nolint:contextcheck // the context is that of connecting, and a run outlives it
		if err != nil {
			in.mu.Unlock()
			return in.final(err)
		}
		in.mu.run = r
	}
	r := in.mu.run
	in.mu.Unlock()
	err := r.connected(ctx)
	if r.isOver() {
		return in.final(in.ended(r))
	}
	return err
}

// final is an error that the engine reports seldom. A subscriber that has been replaced by another
// process must not take its name back.
func (in *input) final(err error) error {
	if fault, is := errors.AsType[*client.Error](err); is && fault.Code == "STRM-SESSION-REPLACED" {
		in.log.Errorf("The input ends: %v", err)
		return service.ErrEndOfInput
	}
	return service.NewErrBackOff(err, finalWait)
}

// ended forgets a run whose client has ended, and returns why.
func (in *input) ended(r *run) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.mu.run == r {
		in.mu.run = nil
	}
	if in.mu.stopped != nil {
		return in.mu.stopped
	}
	return r.err
}

// stop makes the input deliver nothing more.
func (in *input) stop(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.mu.stopped = err
}

// ReadBatch implements service.BatchInput.
func (in *input) ReadBatch(ctx context.Context) (service.MessageBatch, service.AckFunc, error) {
	in.mu.Lock()
	r := in.mu.run
	in.mu.Unlock()
	if r == nil {
		return nil, nil, service.ErrNotConnected
	}
	var batch service.MessageBatch
	var accept func()
	for len(batch) == 0 {
		var err error
		if batch, err = r.batch(ctx, in.policy); err != nil {
			return nil, nil, err
		}
		if accept = r.queue.depart(); len(batch) == 0 { // the policy's processors have removed all messages
			accept()
		}
	}
	return batch, func(_ context.Context, err error) error {
		if err != nil {
			return err // the wrapper keeps the batch and delivers it again
		}
		accept()
		in.unacknowledged.Set(int64(r.queue.under()))
		return nil
	}, nil
}

// Close implements service.BatchInput. Before it returns, it acknowledges all accepted batches.
func (in *input) Close(ctx context.Context) error {
	in.mu.Lock()
	r := in.mu.run
	in.mu.run = nil
	in.mu.Unlock()
	var err error
	if r != nil {
		err = r.close(ctx)
	}
	if in.policy != nil {
		err = errors.Join(err, in.policy.Close(ctx))
	}
	for _, p := range in.processors {
		err = errors.Join(err, p.Close(ctx))
	}
	return err
}

// message makes a message of a change.
func message(c client.Change) *service.Message {
	m := service.NewMessage(c.Data)
	set := func(name, value string) {
		if value != "" {
			m.MetaSetMut(name, value)
		}
	}
	partition := strconv.FormatUint(uint64(c.Partition), 10)
	if c.AllPartitions {
		partition = "all"
	}
	set("partition", partition)
	set("operation", c.Op())
	db, coll := c.Namespace()
	set("db", db)
	set("coll", coll)
	namespace := db
	if coll != "" {
		namespace += "." + coll
	}
	set("namespace", namespace)
	set("key", c.Key())
	set("id", identity(c, namespace))
	if seconds, ordinal := c.Timestamp(); seconds != 0 {
		set("cluster_time", time.Unix(int64(seconds), 0).UTC().Format(time.RFC3339))
		set("version", strconv.FormatUint(uint64(seconds)<<32|uint64(ordinal), 10))
	}
	set("snapshot", strconv.FormatBool(c.Snapshot))
	return m
}

// identity identifies a message. Documents of a snapshot that were read together have one position.
// Who chooses the _ids must not be able to make two of them alike: targets drop one.
func identity(c client.Change, namespace string) string {
	if !c.Snapshot {
		return c.ID()
	}
	document := sha256.Sum256([]byte(namespace + "\x00" + c.Key()))
	return fmt.Sprintf("%s-%x", c.ID(), document[:16])
}

// lost is the text of a loss.
func lost(n client.Resync) string {
	from := "an unknown time"
	if !n.From.IsZero() {
		from = n.From.UTC().Format(time.RFC3339)
	}
	of := "all collections"
	if len(n.Namespaces) > 0 {
		of = fmt.Sprint(n.Namespaces)
	}
	return fmt.Sprintf("changes of %s between %s and %s may have been missed (%s). %s", of, from, n.To.UTC().Format(time.RFC3339), n.Reason, n.Advice)
}
