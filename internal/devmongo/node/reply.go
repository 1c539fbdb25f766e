package node

import (
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/fault"
	"github.com/mongostream/streamer/internal/devmongo/profile"
	"github.com/mongostream/streamer/internal/devmongo/store"
)

// Succeed ends the reply of a command that worked.
func (r *Request) Succeed(b *doc.Builder) {
	b.Double("ok", 1)
	if r.Standalone {
		return
	}
	if r.BeforeReply != nil {
		r.BeforeReply(r.Name, r.namespace())
	}
	r.clusterTime(b)
	b.Timestamp("operationTime", r.operationTime())
}

// Fail is the reply of a command that did not. The labels of a fail point replace the server's own, unless they are nil.
func (r *Request) Fail(b *doc.Builder, err error, labels []string) {
	e := fault.From(err)
	if labels == nil {
		labels = r.labels(e.Code)
	}
	if len(labels) > 0 {
		b.Strings("errorLabels", labels...)
	}
	first := !r.Release.Since(profile.R60) && !r.Standalone
	if first {
		b.Timestamp("operationTime", r.operationTime())
	}
	b.Double("ok", 0).String("errmsg", e.Message).Int32("code", int32(e.Code)).String("codeName", e.Code.Name()).Raw(e.Extra)
	if r.Standalone {
		return
	}
	r.clusterTime(b)
	if !first {
		b.Timestamp("operationTime", r.operationTime())
	}
}

// labels are those that the server itself gives an error.
func (r *Request) labels(code fault.Code) []string {
	ends := r.Name == "commitTransaction" || r.Name == "abortTransaction"
	transient := code == fault.WriteConflict || code == fault.NoSuchTransaction && r.Name != "abortTransaction"
	switch {
	case r.InTxn && (transient || !ends && code.Retryable()):
		return []string{fault.LabelTransient}
	case r.Numbered && (!r.InTxn || ends) && code.Retryable():
		return []string{fault.LabelRetryable}
	case code.NonResumable():
		return []string{fault.LabelNonResumable}
	default:
		return nil
	}
}

func (r *Request) operationTime() uint64 {
	if r.Streams {
		return r.Oplog.Committed()
	}
	return r.Oplog.Applied()
}

func (r *Request) clusterTime(b *doc.Builder) {
	var hash [20]byte
	b.Open("$clusterTime").Timestamp("clusterTime", r.Oplog.ClusterTime())
	b.Open("signature").Binary("hash", 0, hash[:]).Int64("keyId", 0).End().End()
}

// OpTime appends a time with the term of the one election that there ever was.
func OpTime(b *doc.Builder, name string, ts uint64) {
	b.Open(name).Timestamp("ts", ts).Int64("t", 1).End()
}

// ElectionID is the same in every run: there is one node.
func ElectionID() [12]byte {
	return [12]byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1}
}

// Elements are those of a document.
func Elements(d bsoncore.Document) []byte { return d[4 : len(d)-1] }

// IsOplog reports whether a collection is the oplog.
func IsOplog(n store.Name) bool { return n == store.Name{DB: "local", Coll: "oplog.rs"} }
