package devmongo_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/devmongotest"
	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// TestRecordings replays what a real MongoDB 4.4 was asked and compares what it answered. What may
// differ, and why, is in exempt, partial and skipReply.
func TestRecordings(t *testing.T) {
	for _, tc := range []struct {
		names  []string // played one after the other
		config devmongo.Config
		before func(r *replay)
		large  func(r *replay, l *line)
	}{
		{names: []string{"01-handshake"}},
		{names: []string{"02-crud"}},
		{names: []string{"03-watch-collection"}},
		{names: []string{"04-watch-database"}},
		{names: []string{"05-watch-cluster"}},
		{names: []string{"06-start-options"}},
		{names: []string{"07-invalidate"}},
		{names: []string{"08-transaction"}},
		{names: []string{"09-same-second"}},
		{names: []string{"10-full-document"}},
		{names: []string{"11-pipeline"}},
		{names: []string{"12-bad-tokens"}},
		{names: []string{"13-fail-points"}},
		{names: []string{"14-odd-documents", "15-oplog"}}, // 15 shows the end of 14 in the oplog
		{names: []string{"16-large"}, large: sendLarge},
		{names: []string{"17-batches"}},
		{names: []string{"18-history-lost"}, config: devmongo.Config{OplogBytes: 256 << 10}, large: wrapOplog},
		{names: []string{"19-standalone"}, config: devmongo.Config{Standalone: true}},
		{names: []string{"20-token-not-found"}, before: func(r *replay) { r.insert("nf", doc.New().Int32("_id", 1).Document()) }},
		{names: []string{"21-kill-and-sessions"}},
	} {
		t.Run(strings.Join(tc.names, "+"), func(t *testing.T) {
			r := newReplay(t, devmongotest.Start(t, tc.config))
			r.large = tc.large
			if tc.before != nil {
				tc.before(r)
			}
			for _, name := range tc.names {
				r.play(readRecording(t, name))
			}
		})
	}
}

// insert stores documents in a collection of the database "rec", on a connection of its own.
func (r *replay) insert(coll string, docs ...bsoncore.Document) bsoncore.Document {
	r.t.Helper()
	return r.command(doc.New().String("insert", coll).String("$db", "rec").Document(), wire.Sequence{Name: "documents", Docs: docs})
}

func (r *replay) command(body bsoncore.Document, sequences ...wire.Sequence) bsoncore.Document {
	r.t.Helper()
	c, err := net.Dial("tcp", r.m.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(message{body: body, sequences: sequences}.encode(1, 0)); err != nil {
		r.t.Fatal(err)
	}
	reply, err := readReply(c)
	if ok, _ := doc.Field(reply, "ok"); err != nil || ok.Double() != 1 {
		r.t.Fatal(err, reply)
	}
	return reply
}

// sendLarge makes the two requests with 9 MiB that recording 16 leaves out.
func sendLarge(r *replay, l *line) {
	r.t.Helper()
	insert := l.RequestID == 536
	var reply bsoncore.Document
	if insert {
		reply = r.insert("large", doc.New().String("_id", "big").String("p", strings.Repeat("x", 9<<20)).Document())
	} else {
		q := doc.New().Open("q").String("_id", "big").End().Open("u").Open("$set").String("p", strings.Repeat("y", 9<<20)).End().End().Document()
		reply = r.command(doc.New().String("update", "large").String("$db", "rec").Document(), wire.Sequence{Name: "updates", Docs: []bsoncore.Document{q}})
	}
	if err := r.m.document("", r.replies[l.RequestID].message(r.t).body, reply); err != nil {
		r.t.Error(err)
	}
}

// largeReply learns from the two replies with 9 MiB that recording 16 leaves out, what later
// messages and its notes show of them: the token of the first event, and the cursor of the
// projected stream.
func largeReply(r *replay, request int32, actual bsoncore.Document) error {
	cursor, _ := doc.Field(actual, "cursor")
	events := batch(cursor.Data)
	if len(events) == 0 || len(events[0]) < 9<<20 {
		return fmt.Errorf("%d events, want one of 9 MiB first", len(events))
	}
	if request == 537 {
		pbrt, _ := doc.Field(cursor.Data, "postBatchResumeToken")
		const data = "826B012B9F0000000B2B022C0100296E5A1004B2A8DA0207464C6D8C49DE61D34AF64F463C5F6964003C626967000004"
		return r.m.token(doc.New().String("_data", data).Document(), pbrt.Data)
	}
	id, _ := doc.Field(cursor.Data, "id")
	r.streams[5171763541729425668] = &watched{ns: "large", actual: events[1:]}
	return learn(r.m.cursors, 5171763541729425668, id.Int64(), "cursor")
}

// wrapOplog stands for the many large inserts that recording 18 leaves out: it writes until the log
// has wrapped.
func wrapOplog(r *replay, l *line) {
	r.t.Helper()
	if l.RequestID != 14 {
		return
	}
	first := r.server.Stats().OplogEntries
	for i := range 40 {
		var docs []bsoncore.Document
		for j := range 100 {
			docs = append(docs, doc.New().Int32("_id", int32(100*i+j)).Document())
		}
		r.insert("filler", docs...)
	}
	if now := r.server.Stats().OplogEntries; now > first+4000 {
		r.t.Fatalf("the log did not wrap: %d entries", now)
	}
}
