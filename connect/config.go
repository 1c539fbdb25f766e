package connect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redpanda-data/benthos/v4/public/service"

	"github.com/mongostream/streamer/client"
)

//nolint:gochecknoinits // the engine knows components by the import of their package
func init() { service.MustRegisterBatchInput("streamer", spec(), newInput) }

// Values of on_loss.
const (
	lossStops     = "stop"
	lossContinues = "continue"
	lossSnapshot  = "snapshot"
)

// spec describes the input. The engine prints it, completes it in editors, and lints with it.
func spec() *service.ConfigSpec {
	return service.NewConfigSpec().
		Beta().
		Categories("Services").
		Summary("Reads the changes of MongoDB from the nodes of Streamer: filtered, in order, acknowledged, and resumed by the name of the subscriber.").
		Description(description).
		Fields(connectionFields()...).
		Fields(subscriptionFields()...).
		Fields(deliveryFields()...).
		LintRule(`root = if this.start == "time" && this.start_time.or("") == "" { "start: time needs start_time" }`).
		LintRule(`root = if this.start != "time" && this.start_time.or("") != "" { "start_time needs start: time" }`).
		Example("Files by day", "Each change becomes a line of the file of its day. For targets that keep one document per key, where deletions need a request of their own, see https://github.com/mongostream/streamer/blob/main/docs/connect.md.", exampleFile)
}

const description = `
A message is a change event as Extended JSON (https://github.com/mongostream/streamer/blob/main/docs/concepts.md#keys). Its metadata are:

- ` + "`id`" + `: identifies the message; the same whenever a change is delivered again. A document of a snapshot that was not acknowledged may be read again after a crash, and then has another one
- ` + "`partition`" + `: the unit of order; "all" for a change of a whole collection or database
- ` + "`operation`" + `: insert, update, replace, delete, snapshot, left, drop, …
- ` + "`db`, `coll`, `namespace`" + `
- ` + "`key`" + `: the document's _id as text
- ` + "`cluster_time`" + `: when the change was made, by MongoDB's clock, as RFC 3339
- ` + "`version`" + `: the cluster time as one number that grows with every change of a document, for external versions; changes of one transaction share it
- ` + "`snapshot`" + `: true for a document of a snapshot, false for a change

Delivery is at least once, in the order of the log for each partition. A batch moves the subscriber's checkpoint when it and all before it are acknowledged; a rejected one is delivered again. A subscriber has one process at a time: a second one with its name takes over, and the input of the first ends.

Counters: ` + "`input_streamer_losses`, `input_streamer_rewinds`, `input_streamer_filter_failures`" + `. Gauge: ` + "`input_streamer_unacknowledged`" + ` (messages).
`

const exampleFile = `
input:
  streamer:
    addresses: ["127.0.0.1:9090"]
    subscriber: archive
    db: shop
    start: snapshot

output:
  file:
    path: 'archive/${! @cluster_time.slice(0, 10) }.jsonl'
    codec: lines
`

func connectionFields() []*service.ConfigField {
	return []*service.ConfigField{
		service.NewStringListField("addresses").Description("`host:port` of the gRPC servers of nodes, or of a load balancer. They are tried in turn.").
			Example([]string{"streamer-0:9090", "streamer-1:9090", "streamer-2:9090"}),
		service.NewStringField("subscriber").Description("The durable name. The nodes keep a checkpoint under it, and a restart resumes there. Give each pipeline its own.").
			Example("search").Example("team-a/warehouse"),
		service.NewTLSToggledField("tls"),
		service.NewStringField("token").Description("The bearer token, where nodes have access control.").Default("").Secret().Example("${STREAMER_TOKEN}"),
		service.NewStringField("token_file").Description("A file with the bearer token, which is read for every connection, so that it can be replaced.").Default("").Example("/run/secrets/streamer"),
		service.NewBoolField("plaintext").Description("Allows connections without TLS to other hosts than this one.").Default(false).Advanced(),
		service.NewBoolField("token_in_plaintext").Description("Allows sending the token without TLS to other hosts, for example to a proxy that has TLS.").Default(false).Advanced(),
	}
}

func subscriptionFields() []*service.ConfigField {
	return []*service.ConfigField{
		service.NewStringField("db").Description("The database; empty: all that are watched.").Default("").Example("shop"),
		service.NewStringField("coll").Description("The collection; empty: all of the database.").Default("").Example("orders"),
		service.NewStringListField("ops").Description("Operations; empty: all.").Default([]any{}).Example([]string{"insert", "update", "replace", "delete"}),
		service.NewStringField("filter").Description("A filter in CEL over `doc`, `before`, `op`, `ns`, `key` and `update`, which the nodes apply.").Default("").
			Example(`doc.status == "paid" && doc.total >= 100`),
		service.NewStringListField("fields").Description("Top-level fields of documents to send beside `_id`; empty: all.").Default([]any{}).Example([]string{"status", "total"}),
		service.NewStringEnumField("deletes", "all", "none", "before").
			Description("Which deletions match a filter that reads `doc`: all of the namespace, none, or those whose document matched before, which needs pre-images.").Default("all").Advanced(),
		service.NewBoolField("leaves").Description("Also sends a message when a document stops matching the filter, of the operation `left`, with its key only.").Default(false).Advanced(),
		service.NewStringEnumField("start", "now", "earliest", "time", "snapshot", "resume").
			Description("Where a subscriber without a checkpoint begins: with new changes, with the oldest of the log, at `start_time`, or with the documents that exist and new changes. `resume` fails without a checkpoint.").Default("now"),
		service.NewStringField("start_time").Description("Where `start: time` begins.").Default("").Example("2026-01-31T12:00:00Z").Advanced(),
	}
}

func deliveryFields() []*service.ConfigField {
	return []*service.ConfigField{
		service.NewStringEnumField(onLoss, lossStops, lossContinues, lossSnapshot).
			Description("What a loss does, a stretch of the log of which changes may have been missed. It is always logged and counted. `stop`: nothing more is delivered until a restart with another value. `continue`: the input goes on. `snapshot`: it goes on, and the documents of the collections concerned are sent again.").
			Default(lossStops),
		service.NewBatchPolicyField("batching").
			Description("Without it, a batch is what has come, at most 1,000 messages and 1 MiB or one message. With it, `period` is needed: messages would otherwise wait without end on a quiet stream."),
		service.NewIntField("max_in_flight").
			Description("Batches that may be under way at a time; 0: any number. With more than 1 throughput grows, but a batch that the target rejects comes again after later ones, so that an older state of a document may follow a newer one. A batching policy of an output waits in vain for more messages than these batches have, unless it has a period: leave it empty there.").
			Default(1),
	}
}

const onLoss = "on_loss"

// A settings is a parsed configuration.
type settings struct {
	client     client.Config
	sub        client.Subscription
	onLoss     string
	policy     *service.Batcher // nil without one; without its processors
	processors []*service.OwnedProcessor
	limit      int // batches in flight, 0: any number
}

// A parser takes fields and keeps the first error.
type parser struct {
	conf *service.ParsedConfig
	err  error
}

func take[T any](p *parser, get func(path ...string) (T, error), name string) T {
	v, err := get(name)
	if err != nil && p.err == nil {
		p.err = err
	}
	return v
}

func (p *parser) text(name string) string    { return take(p, p.conf.FieldString, name) }
func (p *parser) flag(name string) bool      { return take(p, p.conf.FieldBool, name) }
func (p *parser) texts(name string) []string { return take(p, p.conf.FieldStringList, name) }
func (p *parser) refuse(err error)           { p.err = errors.Join(p.err, err) }

// parse reads the configuration. The client refuses what makes no sense.
func parse(conf *service.ParsedConfig, res *service.Resources) (settings, error) {
	p := &parser{conf: conf}
	s := settings{
		client: client.Config{
			Addresses: p.texts("addresses"), Subscriber: p.text("subscriber"), Acks: client.AckManual, Concurrency: 1, Attempts: 1,
			Plaintext: p.flag("plaintext"), TokenInPlaintext: p.flag("token_in_plaintext"),
		},
		sub: client.Subscription{
			ID: "connect", DB: p.text("db"), Coll: p.text("coll"), Ops: p.texts("ops"), Filter: p.text("filter"), Fields: p.texts("fields"),
			Format: client.JSON, Leaves: p.flag("leaves"),
		},
		onLoss: p.text(onLoss),
		limit:  take(p, conf.FieldInt, "max_in_flight"),
	}
	if s.client.Subscriber == "" {
		p.refuse(errors.New("subscriber: required, because a restart resumes by it"))
	}
	s.sub.Deletes = map[string]client.Deletes{"none": client.DeletesNone, "before": client.DeletesBefore}[p.text("deletes")]
	if s.onLoss == lossSnapshot {
		s.sub.OnLoss = client.LossSnapshot
	}
	s.client.Start = map[string]client.Start{
		"now": client.StartNow, "earliest": client.StartEarliest, "time": client.StartTime, "snapshot": client.StartSnapshot, "resume": client.StartResume,
	}[p.text("start")]
	if at := p.text("start_time"); at != "" {
		var err error
		if s.client.Time, err = time.Parse(time.RFC3339, at); err != nil {
			p.refuse(fmt.Errorf("start_time: %w", err))
		}
	}
	p.security(&s.client)
	p.batching(&s, res)
	if p.err == nil {
		p.err = s.client.Validate()
	}
	return s, p.err
}

// security reads TLS and the token.
func (p *parser) security(c *client.Config) {
	secure, enabled, err := p.conf.FieldTLSToggled("tls")
	if err != nil {
		p.refuse(err)
	}
	if enabled {
		c.TLS = secure
	}
	token, file := p.text("token"), p.text("token_file")
	switch {
	case token != "" && file != "":
		p.refuse(errors.New("token and token_file: only one may be set"))
	case token != "":
		c.Token = func(context.Context) (string, error) { return token, nil }
	case file != "":
		c.Token = func(context.Context) (string, error) {
			text, err := os.ReadFile(file)
			if err != nil {
				return "", fmt.Errorf("read token: %w", err)
			}
			return strings.TrimSpace(string(text)), nil
		}
	}
}

// batching reads the policy of batches. Its processors are the input's own: a policy that has them
// drops a batch that they do not complete.
func (p *parser) batching(s *settings, res *service.Resources) {
	policy, err := p.conf.FieldBatchPolicy("batching")
	switch {
	case err != nil:
		p.refuse(err)
	case policy.IsNoop():
	case policy.Period == "":
		p.refuse(errors.New("batching: period is needed, because messages would wait without end on a quiet stream"))
	default:
		if s.processors, err = p.conf.FieldProcessorList("batching", "processors"); err != nil {
			p.refuse(err)
		}
		bare := service.BatchPolicy{ByteSize: policy.ByteSize, Count: policy.Count, Check: policy.Check, Period: policy.Period}
		if s.policy, err = bare.NewBatcher(res); err != nil {
			p.refuse(err)
		}
	}
}
