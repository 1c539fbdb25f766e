package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that ours wraps
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/mongostream/streamer/gateway/streampb"
)

// A stream is a connection to a node. One goroutine may call Send while another calls Recv.
type stream interface {
	Send(m *streampb.ConnectRequest) error
	// Recv returns the encoded next message. The caller owns the bytes.
	Recv() ([]byte, error)
	CloseSend() error
	// Close closes the connection.
	Close() error
}

// A call is a stream over gRPC. It has its own connection, so that gRPC does not reconnect by
// itself.
type call struct {
	grpc.ClientStream

	conn *grpc.ClientConn
}

var _ stream = (*call)(nil)

// Send implements stream.
func (c *call) Send(m *streampb.ConnectRequest) error { return c.SendMsg(m) }

// Recv implements stream.
func (c *call) Recv() (b []byte, err error) {
	err = c.RecvMsg(&b)
	return b, err
}

// Close implements stream.
func (c *call) Close() error { return c.conn.Close() }

// A codec leaves received messages encoded. Almost all are batches whose payloads can stay in
// place; unmarshalling each event would cost more than everything else that is done with it.
type codec struct{ encoding.CodecV2 }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if b, ok := v.(*[]byte); ok {
		*b = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// Windows and buffers of a connection.
const (
	window     = 1 << 20
	readBuffer = 64 << 10
)

// dial connects to a node. The stream ends with the context.
func dial(ctx context.Context, address string, secure *tls.Config, token func(context.Context) (string, error), maxMessage int) (stream, error) {
	transport := insecure.NewCredentials()
	if secure != nil {
		transport = credentials.NewTLS(secure)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window), grpc.WithReadBufferSize(readBuffer),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.ForceCodecV2(codec{encoding.GetCodecV2("proto")})),
	}
	if token != nil {
		options = append(options, grpc.WithPerRPCCredentials(bearer(token)))
	}
	conn, err := grpc.NewClient(address, options...)
	if err != nil {
		return nil, err
	}
	connect, err := conn.NewStream(ctx, &streampb.Gateway_ServiceDesc.Streams[0], streampb.Gateway_Connect_FullMethodName)
	if err != nil {
		_ = conn.Close() // the stream could not be opened
		return nil, err
	}
	return &call{connect, conn}, nil
}

// A bearer sends a token with each call. The client has already checked whether plaintext is
// allowed.
type bearer func(context.Context) (string, error)

var _ credentials.PerRPCCredentials = bearer(nil)

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := b(ctx)
	if err != nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (b bearer) RequireTransportSecurity() bool { return false }

// A batch is the next stretch of a session's stream.
type batch struct {
	seq       uint64
	to        place
	message   []byte // which has the changes of the events
	events    []event
	documents bool          // some events are documents of a snapshot
	subs      []*subscribed // subscriptions of the events, once for all that have the same ones
	loss      *streampb.Loss
	attached  []uint32
	detached  []uint32
	snapshot  *streampb.Snapshot

	feed *feed
	size int // bytes that it takes in the queue
	left int // events not handled yet, plus one until all have been queued
}

// continues reports whether the next event of a partition belongs to the same place: a change in
// another form, or the leaving of its document. All events of a place are handled as one.
func (b *batch) continues(e *event) bool { return e.next > 0 && b.events[e.next].place == e.place }

// changeOf returns the encoded change of an event.
func (b *batch) changeOf(e *event) []byte { return b.message[e.from:e.to:e.to] }

// An event is one change in one format. It has no pointers, because a garbage collection would
// follow those of all events that wait.
type event struct {
	place    place
	all      bool // it concerns all partitions
	snapshot bool // it is a document of a snapshot
	// first and last are the range of its subscriptions in the batch, from and to that of its
	// change in the message; next is the next event of its partition in the batch, 0 for none.
	partition, first, last, from, to, next uint32
	format                                 Format
}

// Field numbers of proto/streamer/v1/gateway.proto; a test compares them.
const (
	fieldBatch         = 4 // of ConnectResponse
	fieldSeq           = 1 // of Batch
	fieldTo            = 2
	fieldEvents        = 3
	fieldLoss          = 4
	fieldAttached      = 5
	fieldMark          = 6
	fieldDetached      = 7
	fieldPosition      = 1 // of Event
	fieldPartition     = 2
	fieldAllPartitions = 3
	fieldChange        = 4
	fieldFormat        = 5
	fieldSubscriptions = 6
	fieldSnapshot      = 7
)

// decode decodes a message: a batch, or another response. find returns a subscription or nil, and
// must not keep the ID. The result aliases b.
func decode(b []byte, find func(id []byte) *subscribed) (*batch, *streampb.ConnectResponse, error) {
	if number, kind, n := protowire.ConsumeTag(b); n > 0 && number == fieldBatch && kind == protowire.BytesType {
		if value, m := protowire.ConsumeBytes(b[n:]); m == len(b)-n {
			d := decoder{batch: &batch{message: b, size: len(b)}, find: find}
			if err := d.decode(value); err != nil {
				return nil, nil, fmt.Errorf("%w: %w", errProtocol, err)
			}
			return d.batch, nil, nil
		}
	}
	m := &streampb.ConnectResponse{}
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errProtocol, err)
	}
	if m.GetBatch() != nil { // other fields precede or follow it
		again, err := proto.Marshal(&streampb.ConnectResponse{Message: &streampb.ConnectResponse_Batch{Batch: m.GetBatch()}})
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", errProtocol, err)
		}
		return decode(again, find)
	}
	return nil, m, nil
}

// A decoder decodes one batch.
type decoder struct {
	*batch

	find func(id []byte) *subscribed
	last struct { // the last lookup
		id  []byte
		sub *subscribed
	}
}

// fields calls f for each varint and length-delimited field of a message and skips the others.
func fields(b []byte, f func(number protowire.Number, value uint64, bytes []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		var value uint64
		var bytes []byte
		switch kind {
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
			number = 0
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		if number > 0 {
			if err := f(number, value, bytes); err != nil {
				return err
			}
		}
		b = b[n:]
	}
	return nil
}

const eventOverhead = 128 // bytes of memory that an event takes in addition to its message

func (d *decoder) decode(b []byte) error {
	events, known := 0, false
	if err := fields(b, func(number protowire.Number, _ uint64, _ []byte) error {
		if number == fieldEvents {
			events++
		}
		return nil
	}); err != nil {
		return err
	}
	if events > 0 {
		d.events = make([]event, 0, events)
	}
	d.size += eventOverhead * (events + 2)
	err := fields(b, func(number protowire.Number, value uint64, bytes []byte) (err error) {
		switch number {
		case fieldSeq:
			d.seq = value
		case fieldTo:
			d.to, known = readPlace(bytes)
		case fieldEvents:
			return d.event(bytes)
		case fieldLoss:
			d.loss = &streampb.Loss{}
			return proto.Unmarshal(bytes, d.loss)
		case fieldMark:
			d.snapshot = &streampb.Snapshot{}
			return proto.Unmarshal(bytes, d.snapshot)
		case fieldAttached:
			d.attached, err = appendPartitions(d.attached, value, bytes)
		case fieldDetached:
			d.detached, err = appendPartitions(d.detached, value, bytes)
		}
		return err
	})
	if err == nil && !known {
		err = fmt.Errorf("batch %d: no position", d.seq)
	}
	return err
}

func (d *decoder) event(b []byte) error {
	d.events = append(d.events, event{first: uint32(len(d.subs))})
	e := &d.events[len(d.events)-1]
	known := false
	err := fields(b, func(number protowire.Number, value uint64, bytes []byte) error {
		switch number {
		case fieldPosition:
			e.place, known = readPlace(bytes)
		case fieldPartition:
			e.partition = uint32(value)
		case fieldAllPartitions:
			e.all = value != 0
		case fieldSnapshot:
			e.snapshot = value != 0
		case fieldChange:
			e.from = uint32(cap(d.message) - cap(bytes)) // both end where the message does
			e.to = e.from + uint32(len(bytes))
		case fieldFormat:
			if value == uint64(streampb.Format_FORMAT_JSON) {
				e.format = JSON
			} else {
				e.format = BSON
			}
		case fieldSubscriptions:
			if d.last.id == nil || string(d.last.id) != string(bytes) {
				d.last.id = bytes
				d.last.sub = d.find(bytes)
			}
			if d.last.sub != nil {
				if d.subs = append(d.subs, d.last.sub); d.last.sub.isNew {
					d.last.sub.had.Store(true)
				}
			}
		}
		return nil
	})
	e.last = uint32(len(d.subs))
	d.share(e)
	d.documents = d.documents || e.snapshot
	if err == nil && !known {
		err = fmt.Errorf("batch %d: event has no position", d.seq)
	}
	return err
}

// share lets the last event have the subscriptions of the one before it, if they are the same.
func (d *decoder) share(e *event) {
	if len(d.events) < 2 {
		return
	}
	before := &d.events[len(d.events)-2]
	if slices.Equal(d.subs[before.first:before.last], d.subs[e.first:e.last]) {
		d.subs = d.subs[:e.first]
		e.first = before.first
		e.last = before.last
	}
}

// appendPartitions appends a partition, or those of a packed list.
func appendPartitions(to []uint32, value uint64, packed []byte) ([]uint32, error) {
	if packed == nil {
		return append(to, uint32(value)), nil
	}
	for len(packed) > 0 {
		partition, n := protowire.ConsumeVarint(packed)
		if n < 0 {
			return to, protowire.ParseError(n)
		}
		to = append(to, uint32(partition))
		packed = packed[n:]
	}
	return to, nil
}
