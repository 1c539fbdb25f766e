package node

import (
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/failpoint"
	"github.com/mongostream/streamer/internal/devmongo/fault"
	"github.com/mongostream/streamer/internal/devmongo/session"
	"github.com/mongostream/streamer/internal/devmongo/store"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

// Request is one command on its way through the node.
type Request struct {
	*Node
	Client *Client
	Msg    *wire.Message
	Name   string
	Arg    bsoncore.Value // the command's own value, often a collection's name
	Body   bsoncore.Document
	DB     string

	Session  *session.Session
	Number   int64 // transaction number, when Numbered
	Numbered bool
	InTxn    bool
	starts   bool
	Txn      *store.Txn
	Writer   store.Writer // on whose behalf a command writes
	Limit    time.Time    // when maxTimeMS is over; zero is never
	Streams  bool         // the reply's operation time is the majority's
	AsOf     uint64       // cluster time that the command reads at; 0 is now
}

// Read reads what all commands have in common. The request is not nil even when it is refused.
func (n *Node) Read(c *Client, m *wire.Message) (*Request, error) {
	r := &Request{Node: n, Client: c, Msg: m, Body: m.Body}
	var ok bool
	if r.Name, r.Arg, ok = doc.First(m.Body); !ok {
		return r, fault.New(fault.FailedToParse, "the command is empty")
	}
	if m.OpCode == wire.OpQuery {
		r.DB, _, _ = strings.Cut(m.Collection, ".")
		return r, nil
	}
	db, _ := doc.Field(m.Body, "$db")
	if r.DB, ok = db.StringValueOK(); !ok {
		return r, fault.New(40414, "BSON field 'OpMsgRequest.$db' is missing but a required field")
	}
	if ms, ok := r.Int("maxTimeMS"); ok && ms > 0 && r.Name != "getMore" {
		r.Limit = time.Now().Add(time.Duration(ms) * time.Millisecond)
	}
	return r, r.identify()
}

// identify finds the session of a request and what its transaction number is for.
func (r *Request) identify() error {
	if lsid, ok := doc.Field(r.Body, "lsid"); ok {
		var err error
		if r.Session, err = r.Sessions.Get(lsid); err != nil {
			return err
		}
	}
	v, ok := doc.Field(r.Body, "txnNumber")
	if !ok {
		return nil
	}
	switch r.Number, r.Numbered = v.Int64OK(); {
	case r.Standalone:
		return fault.New(fault.IllegalOperation, "Transaction numbers are only allowed on a replica set member or mongos")
	case r.Session == nil:
		return fault.New(fault.InvalidOptions, "Transaction number requires a session ID to also be specified")
	case !r.Numbered:
		return fault.New(fault.TypeMismatch, "BSON field 'txnNumber' is the wrong type '%s', expected type 'long'", doc.TypeName(v.Type))
	}
	auto, present := doc.Field(r.Body, "autocommit")
	r.InTxn = present && !doc.Truth(auto)
	r.starts = r.Truth("startTransaction")
	return nil
}

// Field is an option of the command.
func (r *Request) Field(name string) (bsoncore.Value, bool) { return doc.Field(r.Body, name) }

// Int is an option that is a whole number.
func (r *Request) Int(name string) (int64, bool) {
	v, ok := r.Field(name)
	if !ok {
		return 0, false
	}
	return doc.Int(v)
}

// Truth is an option that is true or false; missing is false.
func (r *Request) Truth(name string) bool {
	v, ok := r.Field(name)
	return ok && doc.Truth(v)
}

// Text is an option that is a string; missing is empty.
func (r *Request) Text(name string) string {
	v, _ := r.Field(name)
	s, _ := v.StringValueOK()
	return s
}

// Document is an option that is a document; nil when it is missing.
func (r *Request) Document(name string) (bsoncore.Document, error) {
	v, ok := r.Field(name)
	if !ok || v.Type == bsoncore.TypeNull {
		return nil, nil
	}
	if v.Type != bsoncore.TypeEmbeddedDocument {
		return nil, fault.New(fault.TypeMismatch, "BSON field '%s.%s' is the wrong type '%s', expected type 'object'", r.Name, name, doc.TypeName(v.Type))
	}
	return v.Data, nil
}

// Documents is a list of documents, from a sequence of the message or an array of the body.
func (r *Request) Documents(name string) ([]bsoncore.Document, error) {
	if docs, ok := r.Msg.Sequence(name); ok {
		return docs, nil
	}
	v, ok := r.Field(name)
	if !ok || v.Type != bsoncore.TypeArray {
		return nil, fault.New(40414, "BSON field '%s.%s' is missing but a required field", r.Name, name)
	}
	var docs []bsoncore.Document
	for item := range doc.Values(v.Data) {
		if item.Type != bsoncore.TypeEmbeddedDocument {
			return nil, fault.New(fault.TypeMismatch, "BSON field '%s.%s' is the wrong type '%s', expected type 'object'", r.Name, name, doc.TypeName(item.Type))
		}
		docs = append(docs, item.Data)
	}
	return docs, nil
}

// Collection is the namespace that the command's own value names.
func (r *Request) Collection() (store.Name, error) {
	coll, ok := r.Arg.StringValueOK()
	if !ok || coll == "" {
		return store.Name{}, fault.New(fault.InvalidNamespace, "collection name has invalid type %s", doc.TypeName(r.Arg.Type))
	}
	return store.Name{DB: r.DB, Coll: coll}, nil
}

// Only refuses options that the command does not know here. What every command may have is always known.
func (r *Request) Only(known ...string) error {
	for name := range doc.All(r.Body) {
		if name == r.Name || strings.HasPrefix(name, "$") || slices.Contains(known, name) || generic(name) {
			continue
		}
		return fault.New(fault.CommandNotSupported, "devmongo does not support the field '%s' of %s", name, r.Name)
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

// Enter asks the fail points what happens to the request.
func (r *Request) Enter() failpoint.Effect {
	return r.Points.Enter(failpoint.Call{Command: r.Name, App: r.Client.App, Namespace: r.namespace()})
}

// namespace is the collection that the request is about, empty where it is about none.
func (r *Request) namespace() string {
	coll, ok := r.Arg.StringValueOK()
	if r.Name == "getMore" {
		coll, ok = r.Text("collection"), true
	}
	if !ok {
		return ""
	}
	return r.DB + "." + coll
}

// BatchSize is the greatest number of documents the client wants in the reply.
func (r *Request) BatchSize(otherwise int) int {
	options := r.Body
	if r.Name == "aggregate" || r.Name == "listCollections" || r.Name == "listIndexes" {
		v, _ := r.Field("cursor")
		options = v.Data
	}
	v, ok := doc.Field(options, "batchSize")
	n, number := doc.Int(v)
	if !ok || !number || n < 0 || n > 1<<30 {
		return otherwise
	}
	return int(n)
}

// ChangeStream reports whether an aggregate opens a change stream, and returns its stages.
func (r *Request) ChangeStream() ([]bsoncore.Document, bool) {
	if r.Name != "aggregate" {
		return nil, false
	}
	stages, err := r.Documents("pipeline")
	if err != nil || len(stages) == 0 {
		return stages, false
	}
	name, _, _ := doc.First(stages[0])
	return stages, name == "$changeStream"
}
