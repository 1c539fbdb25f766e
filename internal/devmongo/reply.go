package devmongo

import (
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/oplog"
	"github.com/mongostream/streamer/internal/devmongo/store"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

// succeed ends the reply of a command that worked.
func (r *request) succeed(b *doc.Builder) {
	b.Double("ok", 1)
	if r.standalone {
		return
	}
	if r.BeforeReply != nil {
		r.BeforeReply(r.name, r.namespace())
	}
	r.clusterTime(b)
	b.Timestamp("operationTime", r.operationTime())
}

// fail is the reply of a command that did not. The labels of a fail point replace the server's own, unless they are nil.
func (r *request) fail(b *doc.Builder, err error, labels []string) {
	e := wire.ErrorOf(err)
	if labels == nil {
		labels = r.labels(e.Code)
	}
	if len(labels) > 0 {
		b.Strings("errorLabels", labels...)
	}
	first := !r.release.Since(oplog.R60) && !r.standalone
	if first {
		b.Timestamp("operationTime", r.operationTime())
	}
	b.Double("ok", 0).String("errmsg", e.Message).Int32("code", int32(e.Code)).String("codeName", e.Code.Name()).Raw(e.Extra)
	if r.standalone {
		return
	}
	r.clusterTime(b)
	if !first {
		b.Timestamp("operationTime", r.operationTime())
	}
}

// labels are those that the server itself gives an error.
func (r *request) labels(code wire.Code) []string {
	ends := r.name == "commitTransaction" || r.name == "abortTransaction"
	transient := code == wire.WriteConflict || code == wire.NoSuchTransaction && r.name != "abortTransaction"
	switch {
	case r.inTxn && (transient || !ends && code.Retryable()):
		return []string{wire.LabelTransient}
	case r.numbered && (!r.inTxn || ends) && code.Retryable():
		return []string{wire.LabelRetryable}
	case code.NonResumable():
		return []string{wire.LabelNonResumable}
	default:
		return nil
	}
}

func (r *request) operationTime() uint64 {
	if r.streams {
		return r.oplog.Committed()
	}
	return r.oplog.Applied()
}

func (r *request) clusterTime(b *doc.Builder) {
	var hash [20]byte
	b.Open("$clusterTime").Timestamp("clusterTime", r.oplog.ClusterTime())
	b.Open("signature").Binary("hash", 0, hash[:]).Int64("keyId", 0).End().End()
}

// opTime appends a time with the term of the one election that there ever was.
func opTime(b *doc.Builder, name string, ts uint64) {
	b.Open(name).Timestamp("ts", ts).Int64("t", 1).End()
}

// electionID is the same in every run: there is one node.
func electionID() [12]byte {
	return [12]byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1}
}

// elements are those of a document.
func elements(d bsoncore.Document) []byte { return d[4 : len(d)-1] }

// isOplog reports whether a collection is the oplog.
func isOplog(n store.Name) bool { return n == store.Name{DB: "local", Coll: "oplog.rs"} }
