package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// database is the one that is written to.
const database = "judged"

const partitions = 16

// A cluster is the processes under test: MongoDB and etcd, and the nodes.
type cluster struct {
	settings

	dir                string
	page, credit, rate int
	mongo, etcd        string // addresses
	http, grpc         []string
	client             *mongo.Client
	db                 *mongo.Database
	writes             atomic.Int64 // the number of the last write
	begun              time.Time
	parts              *process

	mu struct {
		sync.Mutex
		nodes []*process
		told  []string
	}
}

// A process is one that the judge has started.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

func newCluster(ctx context.Context, s settings) (*cluster, error) {
	c := &cluster{settings: s, dir: s.keep, begun: time.Now()}
	if c.dir == "" {
		dir, err := os.MkdirTemp("", "judge-")
		if err != nil {
			return nil, fmt.Errorf("make a folder: %w", err)
		}
		c.dir = dir
	} else if err := os.MkdirAll(c.dir, 0o750); err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	var err error
	if c.dir, err = filepath.Abs(c.dir); err != nil { // URLs have it
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	r := dice(s.seed, "cluster", 0)
	c.page, c.credit, c.rate = pick(r, 7, 15, 30), pick(r, 32, 64, 200, 65536), pick(r, 150, 300)
	free := ports(2 + 2*s.nodes)
	c.mongo, c.etcd, c.http, c.grpc = free[0], free[1], free[2:2+s.nodes], free[2+s.nodes:]
	c.mu.nodes = make([]*process, s.nodes)
	parts := []string{"parts", "-mongodb", c.mongo, "-etcd", c.etcd, "-release", s.release}
	if s.wide {
		parts = append(parts, "-oplog", "1") // some seconds
	}
	if c.parts, err = c.start("parts.log", "demo", parts...); err != nil {
		return nil, err
	}
	opts := options.Client().ApplyURI("mongodb://" + c.mongo + "/?replicaSet=rs0").SetAppName("judge").
		SetServerSelectionTimeout(3 * time.Minute).SetWriteConcern(writeconcern.Majority())
	if c.client, err = mongo.Connect(opts); err != nil {
		return nil, fmt.Errorf("connect to MongoDB: %w", err)
	}
	c.db = c.client.Database(database)
	if err := c.client.Ping(ctx, nil); err != nil {
		return nil, fmt.Errorf("reach MongoDB: %w", err)
	}
	return c, nil
}

// ports returns addresses at which nobody listens. They lie outside the range that the system takes
// ports for outgoing connections from, so that nobody gets one while a node is restarted.
func ports(n int) (addresses []string) {
	const lowest, ports = 30_000, 2_500
	for i := os.Getpid() * 7; len(addresses) < n; i++ {
		address := fmt.Sprintf("127.0.0.1:%d", lowest+i%ports)
		if listener, err := net.Listen("tcp", address); err == nil { //nolint:noctx // at once
			_ = listener.Close()
			addresses = append(addresses, address)
		}
	}
	return addresses
}

func (c *cluster) since() string { return fmt.Sprintf("%6.2fs", time.Since(c.begun).Seconds()) }

// tell notes an event.
func (c *cluster) tell(format string, args ...any) {
	line := c.since() + " " + fmt.Sprintf(format, args...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.told = append(c.mu.told, line)
	if c.verbose {
		fmt.Fprintln(os.Stderr, line)
	}
}

func (c *cluster) told() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.told
}

func (c *cluster) start(log, name string, args ...string) (*process, error) {
	out, err := os.OpenFile(filepath.Join(c.dir, log), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer out.Close()                                                                                 //nolint:errcheck // the process has it
	p := &process{cmd: exec.Command(filepath.Join(c.bin, name), args...), ended: make(chan struct{})} //nolint:noctx // ended by end
	p.cmd.Stdout = out
	p.cmd.Stderr = out
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // judged by what subscribers have
		close(p.ended)
	}()
	return p, nil
}

// end ends a process, by force if it takes long.
func (p *process) end(signal os.Signal, within time.Duration) {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(signal) // it may have ended
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

func (c *cluster) configFile(i int) string { return filepath.Join(c.dir, fmt.Sprintf("n%d.yaml", i)) }

// configure writes the configurations of the nodes, in JSON, which is YAML.
func (c *cluster) configure(i int, sinks []*sink) error {
	type object = map[string]any
	own := []object{}
	for _, s := range sinks {
		own = append(own, s.config(c, i))
	}
	collections := func(names ...string) (all []string) {
		for _, name := range names {
			all = append(all, database+"."+name)
		}
		return all
	}
	retention := object{}
	compression := "none"
	backend := "etcd"
	if c.harsh {
		backend = "mongo"
	}
	if c.wide {
		retention = object{"store": "file://" + filepath.Join(c.dir, fmt.Sprintf("log-n%d", i)), "interval": "1s"}
		compression = "gzip"
	}
	data, err := json.Marshal(object{
		"cluster": object{
			"id": "judge", "partitions": partitions, "lease_ttl": lease.String(), "expected_nodes": c.nodes, "heartbeat_interval": "500ms",
			"settle_time": "500ms", "rebalance_debounce": "200ms",
		},
		"node": object{"id": fmt.Sprintf("n%d", i)},
		"mongodb": object{
			"uri": "mongodb://" + c.mongo + "/?replicaSet=rs0", "watch": []string{database + ".*"}, "full_document": c.full,
		},
		"etcd":   object{"endpoints": []string{c.etcd}},
		"rescan": object{"page_size": c.page, "rate": c.rate, "collections": collections("vol", "old", "draft")},
		"http":   object{"listen": c.http[i], "compression": compression}, "grpc": object{"listen": c.grpc[i]}, "gateway": object{"credit_events": c.credit},
		"reliability": object{
			"checkpoint": object{"interval": "1s", "backend": backend}, "shutdown": object{"drain_timeout": "5s", "flush_timeout": "4s", "checkpoint_timeout": "1s"},
		},
		"handoff": object{"overlap": "300ms"}, "retention": retention, "sinks": own,
	})
	if err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return os.WriteFile(c.configFile(i), data, 0o600)
}

func (c *cluster) startNode(i int) error {
	p, err := c.start(fmt.Sprintf("n%d.log", i), "streamer", "run", "-f", c.configFile(i))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.nodes[i] = p
	return nil
}

func (c *cluster) node(i int) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.nodes[i]
}

// restart kills all nodes and starts them with sinks.
func (c *cluster) restart(sinks []*sink) error {
	for i := range c.nodes {
		c.node(i).end(syscall.SIGKILL, time.Second)
	}
	for i := range c.nodes {
		if err := c.configure(i, sinks); err != nil {
			return err
		}
		if err := c.startNode(i); err != nil {
			return err
		}
	}
	return nil
}

// ready waits until all nodes are ready, and all partitions of the sinks are served. It starts
// nodes that have ended.
func (c *cluster) ready(ctx context.Context, sinks []*sink) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for i := 0; i < c.nodes; {
		select {
		case <-c.node(i).ended:
			if err := c.startNode(i); err != nil {
				return err
			}
		default:
		}
		if status, _ := get(ctx, "http://"+c.http[i]+"/readyz", nil); status == http.StatusOK {
			i++
			continue
		}
		if !sleep(ctx, 100*time.Millisecond) {
			log, _ := os.ReadFile(filepath.Join(c.dir, fmt.Sprintf("n%d.log", i)))
			return fmt.Errorf("node %d does not become ready: %s", i, log[max(0, len(log)-1500):])
		}
	}
	unserved := func(s *sink) bool { return c.askNodes(ctx).served["sink/"+s.name] < partitions }
	for slices.ContainsFunc(sinks, unserved) {
		if !sleep(ctx, 100*time.Millisecond) {
			return errors.New("partitions of sinks have no owner")
		}
	}
	return nil
}

// get reads JSON.
func get(ctx context.Context, url string, to any) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close() //nolint:errcheck // read
	if to == nil {
		return response.StatusCode, nil
	}
	return response.StatusCode, json.NewDecoder(response.Body).Decode(to)
}

// operate runs an operator's command, and reports whether it succeeded.
func (c *cluster) operate(ctx context.Context, args ...string) bool {
	ctx, cancel := context.WithTimeout(ctx, 12*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(c.bin, "streamer"), append(args, "--yes")...).CombinedOutput()
	if err != nil {
		c.tell("%s: %v: %.150s", args[0], err, out)
	}
	return err == nil
}

// beginSnapshot asks for the snapshot of a subscriber at the node that has it.
func (c *cluster) beginSnapshot(ctx context.Context, subscriber string) bool {
	for i := range c.nodes {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		command := exec.CommandContext(ctx, filepath.Join(c.bin, "streamer"), "snapshot", subscriber, "begin", "--address", "http://"+c.http[i], "--yes")
		err := command.Run()
		cancel()
		if err == nil {
			return true
		}
	}
	return false
}

// rewinds moves a subscriber back some seconds, now and then, until the context ends.
func (c *cluster) rewinds(ctx context.Context, dice *rand.Rand, calm *atomic.Bool, subscriber func() string) {
	for sleep(ctx, time.Second+upTo(dice, 6*time.Second)) {
		at := []string{"-f", c.configFile(0)}
		if dice.IntN(2) == 0 {
			at = []string{"--address", "http://" + pick(dice, c.http...)}
		}
		to := fmt.Sprintf("-%ds", 1+dice.IntN(8))
		if name := subscriber(); !calm.Load() && c.operate(ctx, append([]string{"subscribers", "rewind", name, "--to", to}, at...)...) {
			c.tell("%s is moved to %s", name, to)
		}
	}
}

// slowReads makes the reads of a node's documents slow: a fail point of the development MongoDB.
func (c *cluster) slowReads(ctx context.Context, node, milliseconds int) {
	command := bson.D{{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: "off"}}
	if milliseconds > 0 {
		command[1].Value = "alwaysOn"
		command = append(command, bson.E{Key: "data", Value: bson.D{
			{Key: "failCommands", Value: bson.A{"find"}}, {Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: milliseconds},
			{Key: "appName", Value: fmt.Sprintf("streamer judge/n%d", node)},
		}})
	}
	if err := c.client.Database("admin").RunCommand(ctx, command).Err(); err != nil {
		c.tell("fail point: %v", err)
	}
}

// disturb runs the disturbance of a round on the nodes, and undoes it before it returns.
func (c *cluster) disturb(ctx context.Context, round int, sinks []*sink) {
	r := dice(c.seed, "disturbances", round)
	begun := time.Now()
	at := time.Duration(0)
	whole := context.WithoutCancel(ctx)
	c.slowReads(whole, r.IntN(c.nodes), pick(r, 0, 30, 80, 150))
	defer c.slowReads(whole, 0, 0)
	kinds := []string{"kill", "stop", "kill all", "drain", "drain", "handoff"}
	if c.nodes == 1 {
		kinds = kinds[:3]
	}
	if c.harsh {
		kinds = append(kinds, "freeze", "refuse", "lose", "damage", "lose")
	}
	all := func() (all []int) {
		for i := range c.nodes {
			all = append(all, i)
		}
		return all
	}
	for range 2 + r.IntN(2) {
		at += 700*time.Millisecond + upTo(r, 2500*time.Millisecond)
		kind := pick(r, kinds...)
		i := r.IntN(c.nodes)
		wait := upTo(r, 1300*time.Millisecond)
		partition := r.IntN(partitions)
		if at > writing-time.Second || !sleep(ctx, time.Until(begun.Add(at))) {
			return
		}
		c.tell("%s of node %d", kind, i)
		again := func(signal os.Signal, nodes ...int) {
			for _, i := range nodes {
				c.node(i).end(signal, 8*time.Second)
			}
			sleep(whole, wait)
			for _, i := range nodes {
				if err := c.startNode(i); err != nil {
					c.tell("%v", err)
				}
			}
		}
		name := fmt.Sprintf("n%d", i)
		switch kind {
		case "kill":
			again(syscall.SIGKILL, i)
		case "stop":
			again(syscall.SIGTERM, i)
		case "kill all":
			again(syscall.SIGKILL, all()...)
		case "drain":
			c.operate(whole, "drain", name, "-f", c.configFile(i), "--for", "6s")
			sleep(ctx, wait)
			c.operate(whole, "drain", name, "-f", c.configFile(i), "--undo")
		case "handoff":
			c.operate(whole, "handoff", fmt.Sprint(partition), "--to", name, "-f", c.configFile(i), "--for", "10s")
		case "freeze":
			c.freeze(whole, i, lease+wait)
		case "refuse":
			c.refuse(whole, i, pick(r, 260, 280, 286), 1+r.IntN(3))
			again(syscall.SIGKILL, i)
		case "lose", "damage":
			for _, i := range all() {
				c.node(i).end(syscall.SIGKILL, time.Second)
			}
			c.spoil(whole, sinks, kind == "damage", partition)
			again(syscall.SIGKILL, all()...)
		}
	}
}

// close ends everything, and returns what nodes logged and must not.
func (c *cluster) close() (bad []string) {
	for i := range c.nodes {
		c.node(i).end(syscall.SIGKILL, time.Second)
		log, _ := os.ReadFile(filepath.Join(c.dir, fmt.Sprintf("n%d.log", i)))
		for line := range strings.SplitSeq(string(log), "\n") {
			if strings.Contains(line, "DATA RACE") || strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") {
				bad = append(bad, line)
			}
		}
	}
	c.parts.end(syscall.SIGTERM, 5*time.Second)
	if c.keep == "" {
		_ = os.RemoveAll(c.dir)
	}
	return bad
}
