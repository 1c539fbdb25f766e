package devmongo

import (
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/query"
	"github.com/mongostream/streamer/dev/mongo/store"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// request is one command on its way through the node.
type request struct {
	*Server
	client *client
	msg    *wire.Message
	name   string
	arg    bsoncore.Value // the command's own value, often a collection's name
	body   bsoncore.Document
	db     string
	ns     store.Name // the collection, of commands that name one

	session  *store.Session
	number   int64 // transaction number, when Numbered
	numbered bool
	inTxn    bool
	starts   bool
	txn      *store.Txn
	writer   store.Writer // on whose behalf a command writes
	limit    time.Time    // when maxTimeMS is over; zero is never
	streams  bool         // the reply's operation time is the majority's
	asOf     uint64       // cluster time that the command reads at; 0 is now
}

// read reads what all commands have in common. The request is not nil even when it is refused.
func (s *Server) read(c *client, m *wire.Message) (*request, error) {
	r := &request{Server: s, client: c, msg: m, body: m.Body}
	var ok bool
	if r.name, r.arg, ok = doc.First(m.Body); !ok {
		return r, wire.Errorf(wire.FailedToParse, "the command is empty")
	}
	if m.OpCode == wire.OpQuery {
		r.db, _, _ = strings.Cut(m.Collection, ".")
		return r, nil
	}
	db, _ := doc.Field(m.Body, "$db")
	if r.db, ok = db.StringValueOK(); !ok {
		return r, wire.Errorf(40414, "BSON field 'OpMsgRequest.$db' is missing but a required field")
	}
	if ms, ok := r.int("maxTimeMS"); ok && ms > 0 && r.name != "getMore" {
		r.limit = time.Now().Add(time.Duration(ms) * time.Millisecond)
	}
	return r, r.identify()
}

// identify finds the session of a request and what its transaction number is for.
func (r *request) identify() error {
	if lsid, ok := doc.Field(r.body, "lsid"); ok {
		var err error
		if r.session, err = r.sessions.Get(lsid); err != nil {
			return err
		}
	}
	v, ok := doc.Field(r.body, "txnNumber")
	if !ok {
		return nil
	}
	switch r.number, r.numbered = v.Int64OK(); {
	case r.config.Standalone:
		return wire.Errorf(wire.IllegalOperation, "Transaction numbers are only allowed on a replica set member or mongos")
	case r.session == nil:
		return wire.Errorf(wire.InvalidOptions, "Transaction number requires a session ID to also be specified")
	case !r.numbered:
		return wire.Errorf(wire.TypeMismatch, "BSON field 'txnNumber' is the wrong type '%s', expected type 'long'", doc.TypeName(v.Type))
	}
	auto, present := doc.Field(r.body, "autocommit")
	r.inTxn = present && !doc.Truth(auto)
	r.starts = r.truth("startTransaction")
	return nil
}

// field is an option of the command.
func (r *request) field(name string) (bsoncore.Value, bool) { return doc.Field(r.body, name) }

// int is an option that is a whole number.
func (r *request) int(name string) (int64, bool) {
	v, ok := r.field(name)
	if !ok {
		return 0, false
	}
	return doc.Int(v)
}

// truth is an option that is true or false; missing is false.
func (r *request) truth(name string) bool {
	v, ok := r.field(name)
	return ok && doc.Truth(v)
}

// text is an option that is a string; missing is empty.
func (r *request) text(name string) string {
	v, _ := r.field(name)
	s, _ := v.StringValueOK()
	return s
}

// document is an option that is a document; nil when it is missing.
func (r *request) document(name string) (bsoncore.Document, error) {
	v, ok := r.field(name)
	if !ok || v.Type == bsoncore.TypeNull {
		return nil, nil
	}
	if v.Type != bsoncore.TypeEmbeddedDocument {
		return nil, wire.Errorf(wire.TypeMismatch, "BSON field '%s.%s' is the wrong type '%s', expected type 'object'", r.name, name, doc.TypeName(v.Type))
	}
	return v.Data, nil
}

// documents is a list of documents, from a sequence of the message or an array of the body.
func (r *request) documents(name string) ([]bsoncore.Document, error) {
	if docs, ok := r.msg.Sequence(name); ok {
		return docs, nil
	}
	v, ok := r.field(name)
	if !ok || v.Type != bsoncore.TypeArray {
		return nil, wire.Errorf(40414, "BSON field '%s.%s' is missing but a required field", r.name, name)
	}
	var docs []bsoncore.Document
	for item := range doc.Values(v.Data) {
		if item.Type != bsoncore.TypeEmbeddedDocument {
			return nil, wire.Errorf(wire.TypeMismatch, "BSON field '%s.%s' is the wrong type '%s', expected type 'object'", r.name, name, doc.TypeName(item.Type))
		}
		docs = append(docs, item.Data)
	}
	return docs, nil
}

// collection is the namespace that the command's own value names.
func (r *request) collection() (store.Name, error) {
	coll, ok := r.arg.StringValueOK()
	if !ok || coll == "" {
		return store.Name{}, wire.Errorf(wire.InvalidNamespace, "collection name has invalid type %s", doc.TypeName(r.arg.Type))
	}
	return store.Name{DB: r.db, Coll: coll}, nil
}

// only refuses options that the command does not know here. What every command may have is always
// known.
func (r *request) only(known ...string) error {
	for name := range doc.All(r.body) {
		isGeneric := strings.HasPrefix(name, "$") || generic(name)
		if name == r.name || isGeneric || slices.Contains(known, name) {
			continue
		}
		return wire.Errorf(wire.CommandNotSupported, "devmongo does not support the field '%s' of %s", name, r.name)
	}
	return nil
}

func generic(name string) bool {
	switch name {
	case "lsid", "txnNumber", "autocommit", "startTransaction", "readConcern", "writeConcern", "maxTimeMS", "comment",
		"apiVersion", "apiStrict", "apiDeprecationErrors":
		return true
	default:
		return false
	}
}

// enter asks the fail points for their effect on the request.
func (r *request) enter() failPointEffect {
	return r.points.enter(failPointCall{command: r.name, app: r.client.app, namespace: r.namespace()})
}

// namespace is the collection that the request is about, empty where it is about none.
func (r *request) namespace() string {
	coll, ok := r.arg.StringValueOK()
	if r.name == "getMore" {
		coll = r.text("collection")
		ok = true
	}
	if !ok {
		return ""
	}
	return r.db + "." + coll
}

// batchSize is the greatest number of documents the client wants in the reply.
func (r *request) batchSize(otherwise int) int {
	options := r.body
	if r.name == "aggregate" || r.name == "listCollections" || r.name == "listIndexes" {
		v, _ := r.field("cursor")
		options = v.Data
	}
	v, ok := doc.Field(options, "batchSize")
	n, number := doc.Int(v)
	isSize := number && 0 <= n && n <= 1<<30
	if !ok || !isSize {
		return otherwise
	}
	return int(n)
}

// changeStream reports whether an aggregate opens a change stream, and returns its stages.
func (r *request) changeStream() ([]bsoncore.Document, bool) {
	if r.name != "aggregate" {
		return nil, false
	}
	stages, err := r.documents("pipeline")
	if err != nil || len(stages) == 0 {
		return stages, false
	}
	name, _, _ := doc.First(stages[0])
	return stages, name == "$changeStream"
}

// onlyFields refuses fields of a statement that devmongo does not know.
func onlyFields(d bsoncore.Document, command string, known ...string) error {
	r := request{name: command, body: d}
	return r.only(append(known, command)...)
}

// filterField reads a field that is a filter; nil is one that everything passes.
func filterField(d bsoncore.Document, name string) (*query.Filter, error) {
	v, ok := doc.Field(d, name)
	if !ok {
		return nil, nil
	}
	if v.Type != bsoncore.TypeEmbeddedDocument {
		return nil, wire.Errorf(wire.TypeMismatch, "BSON field '%s' is the wrong type '%s', expected type 'object'", name, doc.TypeName(v.Type))
	}
	if doc.Empty(v.Data) {
		return nil, nil
	}
	return query.ParseFilter(v.Data)
}
