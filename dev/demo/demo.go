package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/dev/workload"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/config"
	"github.com/mongostream/streamer/internal/wiring"
	"github.com/mongostream/streamer/streamer"
)

// A demo is one run.
type demo struct {
	options
	output
	findings

	target    *target         // nil without a sink
	away      *absentee       // nil without -oplog
	service   *wiring.Service // nil with several nodes
	addresses []string        // of the nodes, for gateways
	sites     []string        // of the nodes' HTTP servers
}

// options are the flags.
type options struct {
	length     time.Duration // 0: until it is interrupted
	rate       int
	partitions int
	http       string
	grpc       string
	// gateways that subscribe over gRPC, and their subscriptions together; without any, a
	// subscriber in the process takes everything
	gateways, subscriptions int
	json                    bool
	nodes                   int      // processes of a cluster; 1 is a node in this process
	mishaps                 bool     // nodes are killed, frozen and restarted
	handoffs                int      // partitions that move from node to node
	wedged                  []string // components that are made to hang
	documents               int      // that subscribers begin with; 0: they begin with changes
	oplog                   int      // MiB; unless 0 a subscriber is away for most of the time
	gzip                    bool     // event streams are compressed
	retain                  bool     // the node keeps the log beyond the oplog
	sink                    string   // where the nodes publish, and from where the demo takes the messages; empty means nowhere
}

// output is where the demo writes.
type output struct {
	out, notes io.Writer
	news       *teller
	log        io.Writer // of the nodes
	logs       string    // its path, "" where it is notes
}

// findings are what has happened in the run, for its judgement.
type findings struct {
	faults  []mishap
	moved   []move
	wedges  []wedge
	reports int // of the supervisor
	gaps    gaps
	ledger  workload.Ledger
	check   *workload.Check
}

func parse(args []string, out, notes io.Writer) (*demo, error) {
	d := &demo{output: output{out: out, notes: notes, log: notes, news: &teller{to: notes}}}
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(notes)
	flags.Usage = func() {
		fmt.Fprint(notes, usage)
		flags.PrintDefaults()
	}
	flags.DurationVar(&d.length, "for", 0, "how long to write; without it, until Ctrl-C")
	flags.IntVar(&d.rate, "rate", 0, "changes a second; 20 by default, for people to read, and 3000 with -for")
	flags.IntVar(&d.partitions, "partitions", 16, "partitions")
	flags.StringVar(&d.http, "http", "127.0.0.1:8080", "address of the first node's HTTP server; any free port if it is in use")
	flags.StringVar(&d.grpc, "grpc", "127.0.0.1:9090", "address of the first node's gRPC server; any free port if it is in use")
	flags.IntVar(&d.gateways, "gateways", 0, "gateways that subscribe over gRPC; without any, one subscriber in the process. With -snapshot, subscribers that join a second apart, over gRPC and server-sent events, with filters of their own")
	flags.IntVar(&d.subscriptions, "subscriptions", 0, "subscriptions of all gateways together; at least one each")
	flags.IntVar(&d.nodes, "nodes", 1, "nodes; several are processes of their own and share the partitions")
	flags.BoolVar(&d.mishaps, "chaos", false, "kill, freeze and restart nodes at random meanwhile; needs several")
	flags.IntVar(&d.handoffs, "handoffs", 0, "partitions to move from node to node meanwhile; needs several nodes, and -for")
	wedged := flags.String("wedge", "", "components to make stand still meanwhile, at one node after the other: hub, sink; needs several nodes. With sink the nodes publish to Kafka unless -sink says otherwise")
	flags.IntVar(&d.documents, "snapshot", 0, "documents to load first; subscribers begin with them, and are compared with the collection. With -chaos they are killed, too")
	flags.StringVar(&d.sink, "sink", "", "kafka or nats: publish to an embedded broker, and take the changes from there")
	flags.IntVar(&d.oplog, "oplog", 0, "size of the oplog in MiB, 256 if it is not set. If it is, a subscriber is away for most of the time, and resumes where the oplog may not reach any more; needs -for")
	flags.BoolVar(&d.gzip, "gzip", false, "compress event streams for clients that accept it")
	flags.BoolVar(&d.retain, "retention", false, "keep the log beyond the oplog, in a folder; one node")
	output := flags.String("o", "", "json: print only the summary, as one line of JSON")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	set := false
	flags.Visit(func(f *flag.Flag) { set = set || f.Name == "rate" })
	switch {
	case set:
	case d.length > 0:
		d.rate = 3000
	default:
		d.rate = 20
	}
	var err error
	if d.wedged, err = parseWedges(*wedged); err != nil {
		return nil, err
	}
	if d.documents > 0 && d.mishaps && d.nodes == 1 {
		d.nodes = 3
	}
	if d.sink == "" && slices.Contains(d.wedged, "sink") {
		d.sink = "kafka"
	}
	lacksGateways := d.gateways == 0 && d.subscriptions > 0
	isTarget := d.sink == "" || d.sink == "kafka" || d.sink == "nats"
	isAged := d.oplog > 0 || d.retain
	isTooFewToHandOver := d.nodes < 2 || d.length == 0
	isTooMuchForSnapshots := d.subscriptions > 0 || d.sink != "" || d.length == 0
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unknown argument %q", flags.Arg(0))
	case *output != "" && *output != "json":
		return nil, fmt.Errorf("unknown output %q: use -o json", *output)
	case d.rate < 1 || d.partitions < 1 || d.length < 0:
		return nil, errors.New("-rate and -partitions must be at least 1, -for must not be negative")
	case d.gateways < 0 || d.subscriptions < 0 || lacksGateways:
		return nil, errors.New("-gateways and -subscriptions must not be negative, and subscriptions need gateways")
	case !isTarget || d.sink != "" && d.gateways > 0:
		return nil, errors.New("-sink must be kafka or nats, without -gateways")
	case d.oplog < 0 || d.oplog > 0 && d.length == 0:
		return nil, errors.New("-oplog must not be negative, and needs -for")
	case isAged && (d.nodes > 1 || d.documents > 0):
		return nil, errors.New("-oplog and -retention go without -nodes and -snapshot")
	case d.nodes < 1 || d.mishaps && d.nodes < 2:
		return nil, errors.New("-nodes must be at least 1, and at least 2 with -chaos")
	case len(d.wedged) > 0 && (d.nodes < 2 || d.mishaps):
		return nil, errors.New("-wedge needs at least 2 -nodes, and goes without -chaos")
	case d.documents < 0 || d.documents > 0 && isTooMuchForSnapshots:
		return nil, errors.New("-snapshot must not be negative, needs -for, and is without -subscriptions and -sink")
	case d.handoffs < 0 || d.handoffs > 0 && isTooFewToHandOver:
		return nil, errors.New("-handoffs must not be negative, and needs -for and at least 2 -nodes")
	}
	hasReader := d.gateways > 0 || d.documents > 0 || d.sink != ""
	if d.nodes > 1 && !hasReader {
		d.gateways = d.nodes
	}
	d.subscriptions = max(d.subscriptions, d.gateways)
	d.json = *output == "json"
	d.check = workload.NewCheck(&d.ledger)
	return d, nil
}

// usage is what -h says before the flags.
const usage = `demo runs a development MongoDB, etcd, a node of Streamer, a shop that is written to and a subscriber
that counts, in one process:

  demo [flags]   until Ctrl-C, or for the time of -for
  demo parts     only the development MongoDB and etcd, for a node that is started by hand (demo parts -h)

Flags:
`

// settleTimeout bounds how long the last writes may take to arrive.
const settleTimeout = time.Minute

// run starts everything, writes for the given time, waits for the rest to arrive, and judges.
func (d *demo) run(ctx context.Context) error {
	if !d.json {
		fmt.Fprintf(d.notes, "starting a development MongoDB, etcd and %d of Streamer's nodes; Ctrl-C ends it\n", d.nodes)
	}
	p, err := openParts("", "", "", cmp.Or(d.oplog, usualOplog))
	if err != nil {
		return err
	}
	if !d.json {
		log, err := os.CreateTemp("", "streamer-demo-*.log")
		if err != nil {
			return fmt.Errorf("make a file for the nodes' log: %w", err)
		}
		defer d.closeLog(log)
		d.logs = log.Name()
		d.log = log
	}
	background, stopParts := context.WithCancel(context.WithoutCancel(ctx))
	var g errgroup.Group
	g.Go(func() error { return p.run(background) })
	defer func() { stopParts(); _ = g.Wait() }()

	if d.documents > 0 {
		return d.runSnapshot(ctx, p)
	}
	if d.sink != "" {
		if d.target, err = openTarget(ctx, d.sink, p.dir); err != nil {
			return err
		}
		defer d.target.close()
	}
	if d.nodes > 1 {
		return d.runCluster(ctx, background, p)
	}
	return d.runNode(ctx, background, p)
}

// runNode does it with one node in this process.
func (d *demo) runNode(ctx, background context.Context, p *parts) (err error) {
	if d.service, err = d.assemble(ctx, p); err != nil {
		return err
	}
	d.addresses, d.sites = []string{d.service.Gateway()}, []string{d.service.Addr()}
	subscriber, err := d.subscriber(background)
	if err != nil {
		d.service.Close()
		return err
	}
	nodeContext, stopNode := context.WithCancel(background)
	defer stopNode()
	var node errgroup.Group
	node.Go(func() error { return d.service.Run(nodeContext) })
	subscribed := make(chan error, 1)
	go func() { subscribed <- subscriber(nodeContext) }()
	back := make(chan error, 1)
	if d.oplog > 0 {
		d.away = &absentee{d: d, check: workload.NewCheck(&d.ledger)}
		go func() { back <- d.away.run(nodeContext, p) }()
	} else {
		back <- nil
	}

	writing := ctx
	if d.length > 0 {
		var cancel context.CancelFunc
		writing, cancel = context.WithTimeout(ctx, d.length)
		defer cancel()
	}
	d.announce()
	show := d.watch(writing)
	err = workload.NewWriter(workload.Config{URI: p.mongo.URI(), Rate: d.rate, Customers: true}, &d.ledger).Run(writing)
	show()
	d.settle(background)
	if d.away != nil {
		d.away.settle(background)
	}
	stopNode()
	return errors.Join(err, node.Wait(), <-subscribed, <-back, d.judge())
}

// runCluster does it with several nodes, each a process.
func (d *demo) runCluster(ctx, background context.Context, p *parts) error {
	f, err := d.newFleet(ctx, p)
	if err != nil {
		return err
	}
	d.addresses, d.sites = f.addresses()
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if _, err := f.settled(starting, nil); err != nil {
		return errors.Join(err, f.close())
	}
	listening, stopGateways := context.WithCancel(background)
	defer stopGateways()
	subscribed := make(chan error, 1)
	take := d.runGateways
	if d.target != nil {
		take = d.takeFromTarget
	}
	go func() { subscribed <- take(listening) }()
	writing := ctx
	if d.length > 0 {
		writing, cancel = context.WithTimeout(ctx, d.length)
		defer cancel()
	}
	var trouble errgroup.Group
	if d.mishaps {
		trouble.Go(func() (err error) {
			d.faults, err = d.chaos(writing, f)
			return err
		})
	}
	if d.handoffs > 0 {
		trouble.Go(func() (err error) {
			d.moved, err = d.moves(writing, f, d.handoffs)
			return err
		})
	}
	if len(d.wedged) > 0 {
		trouble.Go(func() (err error) {
			d.wedges, d.reports, err = d.wedgeAll(writing, f)
			return err
		})
	}
	d.announce()
	show := d.watch(writing)
	err = workload.NewWriter(workload.Config{URI: p.mongo.URI(), Rate: d.rate, Customers: true}, &d.ledger).Run(writing)
	show()
	err = errors.Join(err, trouble.Wait())
	d.settle(background)
	stopGateways()
	return errors.Join(err, <-subscribed, f.close(), d.judge())
}

// startTimeout bounds how long a cluster may take until it serves all partitions.
const startTimeout = time.Minute

// browsers is where examples/browser serves its page.
const browsers = "http://127.0.0.1:8000"

// settings are those that all nodes have. Filters may read whole documents, as the examples in the
// documents do.
func (d *demo) settings(p *parts) []string {
	compression := "none"
	if d.gzip {
		compression = "gzip"
	}
	return []string{
		"STREAMER_MONGODB_URI=" + p.mongo.URI(), "STREAMER_ETCD_ENDPOINTS=" + p.etcd.Endpoints()[0], fmt.Sprintf("STREAMER_CLUSTER_PARTITIONS=%d", d.partitions),
		"STREAMER_MONGODB_FULL_DOCUMENT=updateLookup", "STREAMER_HTTP_CORS_ORIGINS=" + browsers,
		"STREAMER_HTTP_COMPRESSION=" + compression,
	}
}

// closeLog says where the nodes' log is, if there is something in it.
func (d *demo) closeLog(log *os.File) {
	if at, err := log.Seek(0, io.SeekEnd); err == nil && at == 0 {
		_ = os.Remove(log.Name())
	} else {
		fmt.Fprintf(d.notes, "The nodes' log is in %s.\n", log.Name())
	}
	_ = log.Close() // the nodes have written it
}

// assemble makes the node on the parts.
func (d *demo) assemble(ctx context.Context, p *parts) (*wiring.Service, error) {
	cfg, err := config.Load(d.target.file(), slices.Concat(d.settings(p), d.logSettings(p), []string{"STREAMER_HTTP_LISTEN=" + d.http, "STREAMER_GRPC_LISTEN=" + d.grpc, "STREAMER_NODE_ID=demo"}))
	if err != nil {
		return nil, err
	}
	return assembleAnywhere(ctx, wiring.Options{
		Config: cfg, Version: "demo", Process: rand.Text(),
		Logger: cfg.Log.Logger(d.log, slog.LevelWarn),
	})
}

// subscriber returns what takes everything that the node delivers: gateways, or a shared subscriber
// in this process. It returns when its context ends, or the node.
func (d *demo) subscriber(ctx context.Context) (run func(context.Context) error, err error) {
	switch {
	case d.target != nil:
		return d.takeFromTarget, nil
	case d.gateways > 0:
		return d.runGateways, nil
	}
	shared, err := d.service.Share(ctx, "demo")
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return d.take(context.WithoutCancel(ctx), shared) }, nil
}

// take receives and acknowledges changes until the node has stopped.
func (d *demo) take(ctx context.Context, shared *streamer.Shared) error {
	for {
		batches, err := shared.Receive(ctx)
		if errors.Is(err, delivery.ErrClosed) || fault.Of(err) == fault.NodeStopping {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive changes: %w", err)
		}
		now := time.Now()
		for _, b := range batches {
			shared.Prune(b)
			if b.Loss != nil {
				return fmt.Errorf("changes may have been missed: %+v", b.Loss)
			}
			for i := range b.Events {
				if err := d.check.JSON(b.Payload(i), now); err != nil {
					return err
				}
			}
			if err := shared.Ack(b.Seq); err != nil {
				return fmt.Errorf("acknowledge changes: %w", err)
			}
		}
	}
}

// settle waits until everything that was written has arrived.
func (d *demo) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for d.check.Missing() > 0 {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// A summary is what -o json prints.
type summary struct {
	workload.Report

	Partitions int `json:"partitions"`
	Nodes      int `json:"nodes"`

	Gateways      int `json:"gateways,omitempty"`
	Subscriptions int `json:"subscriptions,omitempty"`

	Sink string `json:"sink,omitempty"`

	Faults []mishap `json:"faults,omitempty"`

	Wedges  []wedge `json:"wedges,omitempty"`
	Reports int     `json:"supervisor_reports,omitempty"`

	Handoffs []move  `json:"handoffs,omitempty"`
	GapP99   float64 `json:"handoff_gap_p99_ms,omitempty"`

	Away *absence `json:"away,omitempty"`
}

// judge prints the summary, and says what went wrong.
func (d *demo) judge() error {
	s := summary{Report: d.check.Report(), Partitions: d.partitions, Nodes: d.nodes, Gateways: d.gateways, Subscriptions: d.subscriptions, Sink: d.sink, Faults: d.faults, Wedges: d.wedges, Reports: d.reports, Handoffs: d.moved, GapP99: gapP99(d.moved)}
	if d.away != nil {
		s.Away = d.away.outcome()
	}
	if d.json {
		if err := json.NewEncoder(d.out).Encode(s); err != nil {
			return fmt.Errorf("print the summary: %w", err)
		}
	} else {
		fmt.Fprintf(d.out, "\n%d changes written, %d delivered, %d missing, %d out of order, %d duplicates; latency p50 %.2f ms, p99 %.2f ms\n",
			s.Written, s.Delivered, s.Missing, s.OutOfOrder, s.Duplicates, s.P50, s.P99)
		if d.target != nil {
			fmt.Fprintf(d.out, "They came %s.\n", d.target)
		}
		if len(s.Handoffs) > 0 {
			fmt.Fprintf(d.out, "%d handoffs; a change of a partition on its way took %.1f ms at most in 99 of 100\n", len(s.Handoffs), s.GapP99)
		}
	}
	if s.Away != nil && !d.json {
		fmt.Fprintln(d.out, s.Away)
	}
	if len(d.wedged) > 0 && !d.json {
		fmt.Fprintf(d.out, "%d components were wedged and make progress again; %d reports\n", len(s.Wedges), s.Reports)
	}
	if s.Missing > 0 || s.OutOfOrder > 0 {
		return fmt.Errorf("%d changes are missing and %d came out of order", s.Missing, s.OutOfOrder)
	}
	if s.Away != nil {
		return s.Away.err()
	}
	return nil
}
