package input

import (
	"errors"
	"fmt"
	"maps"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
)

// fields is the table for messages: every text and every list that a client chooses.
func fields() map[protoreflect.FullName]Bound {
	const (
		ours       = "streamer.v1."
		health     = "grpc.health.v1."
		reflection = "grpc.reflection.v1."
		alpha      = "grpc.reflection.v1alpha."
	)
	checks := Bound{Kind: Message, Count: 32}
	subscriptions := Bound{Kind: Message, Apart: true, Code: fault.SessionTooWide} // as many as a session may have
	positions := Bound{Kind: Message, Count: change.MaxPartitions}
	all := map[protoreflect.FullName]Bound{
		ours + "Hello.subscriber":             stored,
		ours + "Hello.process_id":             stored,
		ours + "Hello.cluster":                named,
		ours + "Hello.position":               position,
		ours + "Hello.positions":              positions,
		ours + "Hello.checks":                 checks,
		ours + "Hello.subscriptions":          subscriptions,
		ours + "Check.name":                   kept,
		ours + "Check.text":                   {Kind: Text, Bytes: 4096, Charge: Memory},
		ours + "PartitionPosition.position":   position,
		ours + "Subscription.id":              stored,
		ours + "Subscription.db":              namespace,
		ours + "Subscription.coll":            namespace,
		ours + "Subscription.ops":             operations,
		ours + "Subscription.filter":          expression,
		ours + "Subscription.fields":          {Kind: Text, Bytes: 255, Count: 100, Charge: Memory},
		ours + "Subscribe.subscriptions":      subscriptions,
		ours + "Unsubscribe.ids":              {Kind: Name, Bytes: MaxName, Code: fault.SessionTooWide}, // as many as a session may have
		ours + "Attach.positions":             positions,
		ours + "Detach.partitions":            {Kind: Number, Count: change.MaxPartitions},
		ours + "Heartbeat.checks":             checks,
		health + "HealthCheckRequest.service": named,
	}
	for _, version := range []protoreflect.FullName{reflection, alpha} {
		maps.Copy(all, map[protoreflect.FullName]Bound{
			version + "ServerReflectionRequest.host":                          named,
			version + "ServerReflectionRequest.file_by_filename":              named,
			version + "ServerReflectionRequest.file_containing_symbol":        named,
			version + "ServerReflectionRequest.list_services":                 named,
			version + "ExtensionRequest.containing_type":                      named,
			version + "ServerReflectionRequest.all_extension_numbers_of_type": named,
		})
	}
	return all
}

// Messages checks messages of clients against the table.
type Messages struct {
	fields map[protoreflect.FullName]Bound
}

// NewMessages returns a Messages. subscriptions bounds the subscriptions of a session.
func NewMessages(subscriptions int) *Messages {
	m := &Messages{fields: fields()}
	for name, bound := range m.fields {
		if bound.Code == fault.SessionTooWide {
			bound.Count = subscriptions
			m.fields[name] = bound
		}
	}
	return m
}

// maxElements bounds the elements of all lists of a message together, because an empty one takes
// more memory than bytes on the wire.
const maxElements = 1 << 18

// CheckWire checks an encoded message of a type before it is decoded. The error is a fault and
// names the wrong field, but does not contain its value. CheckWire only counts messages with
// separate answers; Check checks them. It accepts unknown fields, because a later version of the
// protocol may have them.
func (m *Messages) CheckWire(of protoreflect.MessageDescriptor, wire []byte) error {
	w := walker{fields: m.fields}
	return w.message(of, string(of.Name()), wire, false)
}

// Check checks a message with a separate answer.
func (m *Messages) Check(message proto.Message) error {
	wire, err := proto.Marshal(message)
	if err != nil {
		return fault.New(fault.SessionBadRequest, err)
	}
	return m.CheckWire(message.ProtoReflect().Descriptor(), wire)
}

// A walker walks over one message.
type walker struct {
	fields   map[protoreflect.FullName]Bound
	elements int // of its lists
}

// message checks a message. Within a message that is apart, it checks only the total size.
func (w *walker) message(of protoreflect.MessageDescriptor, path string, wire []byte, apart bool) error {
	counts := make(map[protoreflect.FieldNumber]int)
	for len(wire) > 0 {
		number, kind, n := protowire.ConsumeTag(wire)
		if n < 0 {
			return malformed(path)
		}
		wire = wire[n:]
		size := protowire.ConsumeFieldValue(number, kind, wire)
		if size < 0 {
			return malformed(path)
		}
		value := wire[:size]
		wire = wire[size:]
		field := of.Fields().ByNumber(number)
		if field == nil {
			continue
		}
		where := path + "." + string(field.Name())
		if field.IsList() {
			elements := 1
			if isPacked(field, kind) {
				elements = countPacked(value)
			}
			counts[number] += elements
			if err := w.count(field, where, elements, counts[number], apart); err != nil {
				return err
			}
		}
		if kind != protowire.BytesType {
			continue
		}
		content, n := protowire.ConsumeBytes(value)
		if n < 0 {
			return malformed(where)
		}
		if err := w.value(field, where, content, apart); err != nil {
			return err
		}
	}
	return nil
}

// count checks the number of a list's elements.
func (w *walker) count(field protoreflect.FieldDescriptor, where string, more, count int, apart bool) error {
	bound, known := w.fields[field.FullName()]
	w.elements += more
	switch {
	case !known:
		return unknown(where)
	case w.elements > maxElements:
		return fault.Newf(fault.SessionTooLarge, "the lists of the message have more than %d elements together", maxElements)
	case apart || count <= bound.Count:
		return nil
	case bound.Code == fault.SessionTooWide:
		return fault.Newf(fault.SessionTooWide, "%s has more than %d elements, as many as a session may have", where, bound.Count)
	}
	return fault.Newf(fault.SessionBadRequest, "%s has more than %d elements", where, bound.Count)
}

// value checks a text or a message.
func (w *walker) value(field protoreflect.FieldDescriptor, where string, content []byte, apart bool) error {
	bound, known := w.fields[field.FullName()]
	switch field.Kind() { //nolint:exhaustive // the others have no length
	case protoreflect.StringKind, protoreflect.BytesKind:
		switch {
		case !known:
			return unknown(where)
		case apart:
			return nil
		}
		return bound.check(where, content)
	case protoreflect.MessageKind:
		return w.message(field.Message(), where, content, apart || bound.Apart)
	}
	return nil
}

// Unbounded returns the texts and lists of a message, including nested messages, that have no row.
func (m *Messages) Unbounded(of protoreflect.MessageDescriptor) (missing []protoreflect.FullName) {
	seen := make(map[protoreflect.FullName]bool)
	var walk func(protoreflect.MessageDescriptor)
	walk = func(of protoreflect.MessageDescriptor) {
		if seen[of.FullName()] {
			return
		}
		seen[of.FullName()] = true
		for i := range of.Fields().Len() {
			field := of.Fields().Get(i)
			text := field.Kind() == protoreflect.StringKind || field.Kind() == protoreflect.BytesKind
			needsBound := text || field.IsList() || field.IsMap()
			if _, known := m.fields[field.FullName()]; !known && needsBound {
				missing = append(missing, field.FullName())
			}
			if field.Kind() == protoreflect.MessageKind {
				walk(field.Message())
			}
		}
	}
	walk(of)
	return missing
}

// isPacked reports whether a list of numbers is in the packed encoding.
func isPacked(field protoreflect.FieldDescriptor, kind protowire.Type) bool {
	return kind == protowire.BytesType && field.Kind() != protoreflect.StringKind && field.Kind() != protoreflect.BytesKind && field.Kind() != protoreflect.MessageKind
}

// countPacked returns an upper bound of the numbers in a packed list: each has at least one byte.
func countPacked(value []byte) int {
	content, n := protowire.ConsumeBytes(value)
	if n < 0 {
		return len(value)
	}
	count := 0
	for _, b := range content {
		if b < 0x80 { // the last byte of a number
			count++
		}
	}
	return count
}

func malformed(where string) error {
	return fault.Newf(fault.SessionBadRequest, "%s is not a message of the protocol", where)
}

// errNoBound reports that the table has no row for a field. This is our own fault, and must not let
// the field pass.
var errNoBound = errors.New("the node has no bound for it")

func unknown(where string) error {
	return fault.New(fault.SessionBadRequest, fmt.Errorf("%s: %w", where, errNoBound))
}

// textOverhead is the memory of a text besides its bytes.
const textOverhead = 32

// copies is how often a session keeps a text: in the message, and in a key.
const copies = 2

// Cost returns how much memory a session keeps for a message, in bytes: for all texts that the
// table charges. Nested messages with separate answers have separate costs.
func (m *Messages) Cost(message proto.Message) int { return m.cost(message.ProtoReflect()) }

func (m *Messages) cost(message protoreflect.Message) (sum int) {
	message.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if m.fields[field.FullName()].Apart {
			return true
		}
		charged := m.fields[field.FullName()].Charge != Nothing
		add := func(v protoreflect.Value) {
			switch field.Kind() { //nolint:exhaustive // the others have no length
			case protoreflect.StringKind:
				if charged {
					sum += copies*len(v.String()) + textOverhead
				}
			case protoreflect.BytesKind:
				if charged {
					sum += copies*len(v.Bytes()) + textOverhead
				}
			case protoreflect.MessageKind:
				sum += m.cost(v.Message())
			}
		}
		if !field.IsList() {
			add(v)
			return true
		}
		for list, i := v.List(), 0; i < list.Len(); i++ {
			add(list.Get(i))
		}
		return true
	})
	return sum
}
