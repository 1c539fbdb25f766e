package devmongo_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/query"
)

// exempt lists everything in which replies may differ from the recordings, and why. A path is
// matched at its end.
func exempt() []exemption {
	return []exemption{
		{"operationTime", "the recorded server's majority point lags behind its writes, ours does not"},
		{"$clusterTime.clusterTime", "as operationTime; and a transaction reserves times"},
		{"lastWrite.opTime.ts", "other times"},
		{"lastWrite.majorityOpTime.ts", "other times"},
		{"connectionId", "numbers of connections"},
		{"gitVersion", "another build"},
		{"oplog.latestOptime", "other times"},
		{"oplog.earliestOptime", "other times"},
	}
}

type exemption struct{ path, why string }

// partial lists replies of which only some fields are compared: the rest tells of a storage engine
// and a network that devmongo has not.
func partial() map[string][]string {
	return map[string][]string{
		"serverStatus":     {"version", "oplog", "repl", "ok"},
		"collStats":        {"ns", "capped", "max", "maxSize", "ok"},
		"replSetGetStatus": {"set", "myState", "term", "ok"},
		"buildInfo":        {"version", "versionArray", "bits", "debug", "maxBsonObjectSize", "ok"},
	}
}

// hello is unknown to the recorded server (4.4.2 and later know it); devmongo answers it.
func skipReply(command string) bool { return command == "hello" }

// document compares a recorded document with ours: the same fields in the same order with the same
// types and values.
func (m *mapping) document(path string, recorded, actual bsoncore.Document) error {
	var errs []error
	rNames, aNames := names(recorded), names(actual)
	if !slices.Equal(rNames, aNames) {
		errs = append(errs, fmt.Errorf("%s: fields %v, want %v", path, aNames, rNames))
	}
	for name, r := range doc.All(recorded) {
		if a, ok := doc.Field(actual, name); ok {
			errs = append(errs, m.value(path+"."+name, name, r, a))
		}
	}
	return errors.Join(errs...)
}

func names(d bsoncore.Document) []string {
	var out []string
	for name := range doc.All(d) {
		out = append(out, name)
	}
	return out
}

func (m *mapping) value(path, name string, r, a bsoncore.Value) error {
	if r.Type != a.Type {
		return fmt.Errorf("%s: type %s, want %s (%s, want %s)", path, a.Type, r.Type, a, r)
	}
	for _, e := range exempt() {
		if strings.HasSuffix(path, e.path) {
			return nil
		}
	}
	switch r.Type {
	case bsoncore.TypeEmbeddedDocument:
		if _, isToken := doc.Field(r.Data, "_data"); isToken {
			return m.token(r.Data, a.Data)
		}
		return m.document(path, r.Data, a.Data)
	case bsoncore.TypeArray:
		return m.document(path, r.Data, a.Data)
	case bsoncore.TypeDateTime:
		if name == "_id" || strings.Contains(path, "fullDocument") {
			break
		}
		return nil // wall clocks differ
	case bsoncore.TypeTimestamp:
		if name == "_id" || query.Timestamp(r) == 0 {
			break
		}
		return learn(m.times, query.Timestamp(r), query.Timestamp(a), path)
	case bsoncore.TypeBinary:
		if name == "ui" || name == "uuid" {
			_, rb := r.Binary()
			_, ab := a.Binary()
			return learn(m.binaries, string(rb), string(ab), path)
		}
	case bsoncore.TypeObjectID:
		if name == "processId" {
			return learn(m.ids, string(r.Data), string(a.Data), path)
		}
	case bsoncore.TypeInt64:
		if strings.HasSuffix(path, "cursor.id") && r.Int64() != 0 && a.Int64() != 0 {
			return learn(m.cursors, r.Int64(), a.Int64(), path)
		}
		if strings.Contains(path, "cursorsKilled") || strings.Contains(path, "cursorsNotFound") {
			if want := m.cursors[r.Int64()]; want != a.Int64() {
				return fmt.Errorf("%s: %d, want %d", path, a.Int64(), want)
			}
			return nil
		}
	case bsoncore.TypeString:
		if want := m.text(r.StringValue()); want != a.StringValue() {
			return fmt.Errorf("%s: %q, want %q", path, a.StringValue(), want)
		}
		return nil
	}
	if !query.Same(r, a) {
		return fmt.Errorf("%s: %s, want %s", path, a, r)
	}
	return nil
}

// only keeps the named fields.
func only(d bsoncore.Document, fields []string) bsoncore.Document {
	b := doc.New()
	for name, v := range doc.All(d) {
		if slices.Contains(fields, name) {
			b.Value(name, v)
		}
	}
	return b.Document()
}
