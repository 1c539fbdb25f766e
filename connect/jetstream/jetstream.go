// Package jetstream is the output nats_jetstream for engines that do not have that of Redpanda
// Connect's full distribution. Its keys are some of those there, so that a configuration works with
// both. Import it for its effect, and not beside that one.
//
// # Order
//
// A batch is published message by message: one is sent when the stream has stored the one before.
// After a message that was refused, or whose outcome is unknown, nothing of the batch is sent until
// the engine writes it again. A broken connection is not repaired but replaced. What was sent over
// it may still arrive, after newer messages: with the header Nats-Msg-Id the stream drops it,
// within its duplicate window.
package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redpanda-data/benthos/v4/public/service"
)

//nolint:gochecknoinits // the engine knows components by the import of their package
func init() { service.MustRegisterBatchOutput("nats_jetstream", spec(), newOutput) }

// spec describes the output. The engine prints it, and lints with it.
func spec() *service.ConfigSpec {
	return service.NewConfigSpec().
		Beta().
		Categories("Services").
		Summary("Publishes messages to a stream of NATS JetStream, in order, and accepts a batch when the stream has stored all of it.").
		Fields(
			service.NewStringListField("urls").Description("The servers, which are tried in turn.").Example([]string{"nats://127.0.0.1:4222"}),
			service.NewInterpolatedStringField("subject").Description("A subject of an existing stream.").Example("changes.${! @namespace }"),
			service.NewInterpolatedStringMapField("headers").Description("Headers of each message.").Default(map[string]any{}).Example(map[string]any{"Nats-Msg-Id": `${! @id }`}),
			service.NewTLSToggledField("tls"),
			service.NewObjectField("auth",
				service.NewStringField("user_credentials_file").Description("A file of credentials. A name and password, or a token, may be in the URLs.").Default("")).Advanced(),
			service.NewOutputMaxInFlightField().Default(1),
		)
}

// An output publishes over one connection at a time.
type output struct {
	servers string
	options []nats.Option
	subject *service.InterpolatedString
	headers map[string]*service.InterpolatedString
	log     *service.Logger

	mu struct {
		sync.Mutex
		connection *nats.Conn // nil before Connect
	}
}

// newOutput makes an output that is not connected.
func newOutput(conf *service.ParsedConfig, res *service.Resources) (out service.BatchOutput, _ service.BatchPolicy, limit int, err error) {
	o := &output{
		servers: strings.Join(take(&err, conf.FieldStringList, "urls"), ","),
		options: []nats.Option{nats.Name("streamer-connect"), nats.NoReconnect()},
		subject: take(&err, conf.FieldInterpolatedString, "subject"),
		headers: take(&err, conf.FieldInterpolatedStringMap, "headers"),
		log:     res.Logger(),
	}
	secure, enabled, failed := conf.FieldTLSToggled("tls")
	if enabled {
		o.options = append(o.options, nats.Secure(secure))
	}
	if file := take(&err, conf.FieldString, "auth", "user_credentials_file"); file != "" {
		o.options = append(o.options, nats.UserCredentials(file))
	}
	return o, service.BatchPolicy{}, take(&err, conf.FieldInt, "max_in_flight"), errors.Join(err, failed)
}

// take returns a field, and adds its error to others.
func take[T any](failed *error, get func(path ...string) (T, error), path ...string) T {
	v, err := get(path...)
	*failed = errors.Join(*failed, err)
	return v
}

// Connect implements service.BatchOutput.
func (o *output) Connect(context.Context) error {
	nc, err := nats.Connect(o.servers, o.options...)
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.connection != nil {
		o.mu.connection.Close()
	}
	o.mu.connection = nc
	return nil
}

// WriteBatch implements service.BatchOutput.
func (o *output) WriteBatch(ctx context.Context, batch service.MessageBatch) error {
	o.mu.Lock()
	nc := o.mu.connection
	o.mu.Unlock()
	if nc == nil || nc.IsClosed() {
		return service.ErrNotConnected
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	for i := range batch {
		m, err := o.message(batch, i)
		sent := err == nil
		if sent {
			if _, err = js.PublishMsg(ctx, m); err != nil {
				err = fmt.Errorf("publish to %s: %w", m.Subject, err)
			}
		}
		if err != nil && sent && !refused(err) { // the stream may have stored it
			o.log.Warnf("The connection is replaced: %v", err)
			nc.Close()
			return service.ErrNotConnected
		}
		if err != nil {
			rest := service.NewBatchError(batch, err)
			for ; i < len(batch); i++ {
				_ = rest.Failed(i, err)
			}
			return rest
		}
	}
	return nil
}

// message makes the message of NATS.
func (o *output) message(batch service.MessageBatch, i int) (*nats.Msg, error) {
	subject, err := batch.TryInterpolatedString(i, o.subject)
	if err != nil {
		return nil, fmt.Errorf("subject: %w", err)
	}
	m := nats.NewMsg(subject)
	for name, value := range o.headers {
		text, err := batch.TryInterpolatedString(i, value)
		if err != nil {
			return nil, fmt.Errorf("headers: %s: %w", name, err)
		}
		m.Header.Set(name, text)
	}
	m.Data, err = batch[i].AsBytes()
	return m, err
}

// refused reports whether an error of publishing says that the message is not in the stream.
func refused(err error) bool {
	_, answered := errors.AsType[*jetstream.APIError](err)
	return answered || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrBadSubject)
}

// Close implements service.BatchOutput.
func (o *output) Close(context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.connection != nil {
		o.mu.connection.Close()
	}
	return nil
}
