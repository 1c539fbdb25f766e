package gateway

import (
	"math/bits"
	"sync"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that ours wraps
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/delivery"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/input"
)

// A frame is an encoded ConnectResponse with a batch. Almost all messages are batches, and their
// payloads are already encoded: building a protobuf message for each event would cost more than
// everything before it.
type frame struct{ data mem.BufferSlice }

// codec passes frames on and leaves other messages to protobuf. It checks clients' messages before
// it allocates memory for them.
type codec struct {
	encoding.CodecV2

	input *input.Messages
}

func newCodec(in *input.Messages) codec { return codec{encoding.GetCodecV2("proto"), in} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		return f.data, nil
	}
	return c.CodecV2.Marshal(v)
}

// A received is the target of decoding, with the decoding error, because gRPC would report an error
// to the client in its own words.
type received struct {
	message proto.Message
	err     error
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*received); ok {
		r.err = c.decode(data, r.message)
		return nil
	}
	if m, ok := v.(proto.Message); ok {
		return c.decode(data, m)
	}
	return c.CodecV2.Unmarshal(data, v)
}

// decode checks and decodes a message, without fields that it does not have.
func (c codec) decode(data mem.BufferSlice, into proto.Message) error {
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	wire := buffer.ReadOnlyData()
	if err := c.input.CheckWire(into.ProtoReflect().Descriptor(), wire); err != nil {
		return err
	}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(wire, into); err != nil {
		return fault.Newf(fault.SessionBadRequest, "the message cannot be read: a text is not UTF-8, or it is malformed")
	}
	return nil
}

// Field numbers of proto/streamer/v1/gateway.proto; a test compares them.
const (
	fieldBatch         = 4 // of ConnectResponse
	fieldSeq           = 1 // of Batch
	fieldTo            = 2
	fieldEvents        = 3
	fieldAttached      = 5
	fieldDetached      = 7
	fieldPosition      = 1 // of Event
	fieldPartition     = 2
	fieldAllPartitions = 3
	fieldChange        = 4
	fieldFormat        = 5
	fieldSubscriptions = 6
	fieldSnapshot      = 7
)

// frames are the buffers of frames.
//
//nolint:gochecknoglobals // a pool is shared
var frames framePool

// A framePool keeps buffers that were sent, by the power of two of their capacity. gRPC's own pools
// clear a buffer of 512 KiB each time that they return it, and the one that does not is internal to
// it; frames are written from the beginning anyway.
type framePool [21]sync.Pool

var _ mem.BufferPool = (*framePool)(nil)

// Get implements mem.BufferPool. The contents of the buffer are arbitrary.
func (p *framePool) Get(length int) *[]byte {
	class := bits.Len(uint(max(1, length) - 1))
	if class >= len(p) {
		buffer := make([]byte, length)
		return &buffer
	}
	if buffer, is := p[class].Get().(*[]byte); is {
		*buffer = (*buffer)[:length]
		return buffer
	}
	buffer := make([]byte, length, 1<<class)
	return &buffer
}

// Put implements mem.BufferPool.
func (p *framePool) Put(buffer *[]byte) {
	if class := bits.Len(uint(cap(*buffer))) - 1; class < len(p) && cap(*buffer) == 1<<class {
		p[class].Put(buffer)
	}
}

// newFrame encodes a batch without a loss. The frame owns a buffer that gRPC releases after
// sending.
func newFrame(b *delivery.Batch) *frame {
	w := &frameWriter{}
	size := w.sizeBatch(b)
	whole := protowire.SizeTag(fieldBatch) + protowire.SizeBytes(size)
	buffer := frames.Get(whole)
	p := (*buffer)[:0]
	p = protowire.AppendTag(p, fieldBatch, protowire.BytesType)
	p = protowire.AppendVarint(p, uint64(size))
	p = protowire.AppendTag(p, fieldSeq, protowire.VarintType)
	p = protowire.AppendVarint(p, b.Seq)
	p = protowire.AppendTag(p, fieldTo, protowire.BytesType)
	p = protowire.AppendVarint(p, change.RefSize)
	p = b.To.Ref().Append(p)
	for i := range b.Events {
		p = w.appendEvent(p, &b.Events[i], b.Payload(i))
	}
	p = appendPartitions(p, fieldAttached, b.Attached)
	p = appendPartitions(p, fieldDetached, b.Detached)
	*buffer = p
	return &frame{data: mem.BufferSlice{mem.NewBuffer(buffer, &frames)}}
}

// A frameWriter encodes events. The part after the payload is mostly the same for all events of a
// batch, and is encoded once.
type frameWriter struct {
	of   *delivery.Event // the event whose tail is encoded
	tail []byte
}

// tailOf returns the encoded fields that follow an event's payload.
func (w *frameWriter) tailOf(e *delivery.Event) []byte {
	isAlike := func(of *delivery.Event) bool { return of.Format == e.Format && of.Snapshot == e.Snapshot }
	if w.of != nil && isAlike(w.of) && same(w.of.Subscriptions, e.Subscriptions) {
		return w.tail
	}
	p := protowire.AppendTag(w.tail[:0], fieldFormat, protowire.VarintType)
	p = protowire.AppendVarint(p, uint64(formatOf(e.Format)))
	for _, id := range e.Subscriptions {
		p = protowire.AppendTag(p, fieldSubscriptions, protowire.BytesType)
		p = protowire.AppendString(p, id)
	}
	if e.Snapshot {
		p = protowire.AppendTag(p, fieldSnapshot, protowire.VarintType)
		p = protowire.AppendVarint(p, 1)
	}
	w.of = e
	w.tail = p
	return p
}

// same reports whether two slices are one.
func same(a, b []string) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// placeOf returns the place of an event by which clients drop duplicates. Documents of a snapshot
// share a place; clients must not drop them because of each other or of the change before them.
func placeOf(e *delivery.Event) change.Ref {
	if e.Snapshot {
		return e.Ref.Between()
	}
	return e.Ref
}

func (w *frameWriter) sizeBatch(b *delivery.Batch) int {
	size := protowire.SizeTag(fieldSeq) + protowire.SizeVarint(b.Seq) + protowire.SizeTag(fieldTo) + protowire.SizeBytes(change.RefSize)
	for i := range b.Events {
		size += protowire.SizeTag(fieldEvents) + protowire.SizeBytes(w.sizeEvent(&b.Events[i], len(b.Payload(i))))
	}
	return size + sizePartitions(fieldAttached, b.Attached) + sizePartitions(fieldDetached, b.Detached)
}

// sizePartitions returns the size of a list of partitions with its tag, 0 for none.
func sizePartitions(field protowire.Number, partitions []change.Partition) int {
	if len(partitions) == 0 {
		return 0
	}
	return protowire.SizeTag(field) + protowire.SizeBytes(sizePacked(partitions))
}

func sizePacked(partitions []change.Partition) (size int) {
	for _, partition := range partitions {
		size += protowire.SizeVarint(uint64(partition))
	}
	return size
}

func appendPartitions(p []byte, field protowire.Number, partitions []change.Partition) []byte {
	if len(partitions) == 0 {
		return p
	}
	p = protowire.AppendTag(p, field, protowire.BytesType)
	p = protowire.AppendVarint(p, uint64(sizePacked(partitions)))
	for _, partition := range partitions {
		p = protowire.AppendVarint(p, uint64(partition))
	}
	return p
}

func (w *frameWriter) sizeEvent(e *delivery.Event, payload int) int {
	size := 1 + protowire.SizeBytes(change.RefSize) + 1 + protowire.SizeBytes(payload) + len(w.tailOf(e))
	switch {
	case e.Keyless:
		size += 2
	case e.Partition > 0:
		size += 1 + protowire.SizeVarint(uint64(e.Partition))
	}
	return size
}

func (w *frameWriter) appendEvent(p []byte, e *delivery.Event, payload []byte) []byte {
	p = protowire.AppendTag(p, fieldEvents, protowire.BytesType)
	p = protowire.AppendVarint(p, uint64(w.sizeEvent(e, len(payload))))
	p = protowire.AppendTag(p, fieldPosition, protowire.BytesType)
	p = protowire.AppendVarint(p, change.RefSize)
	p = placeOf(e).Append(p)
	switch {
	case e.Keyless:
		p = protowire.AppendTag(p, fieldAllPartitions, protowire.VarintType)
		p = protowire.AppendVarint(p, 1)
	case e.Partition > 0:
		p = protowire.AppendTag(p, fieldPartition, protowire.VarintType)
		p = protowire.AppendVarint(p, uint64(e.Partition))
	}
	p = protowire.AppendTag(p, fieldChange, protowire.BytesType)
	p = protowire.AppendBytes(p, payload)
	return append(p, w.tailOf(e)...)
}
