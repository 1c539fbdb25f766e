package devmongo_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// replay sends the client's side of a recording to a server of ours and compares the answers.
type replay struct {
	t       *testing.T
	server  *devmongo.Server
	m       *mapping
	conns   map[int]net.Conn
	streams map[int64]*watched // by recorded cursor id
	replies map[int32]*line    // by the request they answer, of the recording at hand
	// large is called for requests that the recording leaves out.
	large func(r *replay, l *line)
}

// watched is a change stream's events on both sides. Batches are cut differently: the recorded
// server delivers what is majority-committed at the moment. What must agree is the sequence.
type watched struct {
	recorded, actual []bsoncore.Document
	done             bool // ours has ended
	ns               string
}

func newReplay(t *testing.T, s *devmongo.Server) *replay {
	r := &replay{t: t, server: s, m: newMapping(s.Addr().String()), conns: map[int]net.Conn{}, streams: map[int64]*watched{}}
	t.Cleanup(func() {
		for _, c := range r.conns {
			_ = c.Close()
		}
	})
	return r
}

// play runs one recording.
func (r *replay) play(lines []*line) {
	r.t.Helper()
	r.replies = map[int32]*line{}
	for _, l := range lines {
		if l.From == "server" {
			r.replies[l.ResponseTo] = l
		}
	}
	for _, l := range lines {
		if l.From != "client" {
			continue
		}
		if l.leftOut() {
			r.large(r, l)
			continue
		}
		if err := r.request(l); err != nil {
			r.t.Errorf("conn %d, request %d %s: %v", l.Conn, l.RequestID, firstWords(l), err)
		}
	}
	for id, s := range r.streams {
		if len(s.recorded) > 0 {
			r.t.Errorf("stream %d: %d recorded events never came, the first is %s", id, len(s.recorded), s.recorded[0])
		}
	}
}

func firstWords(l *line) string { return strings.TrimSpace(string(l.Body[:min(len(l.Body), 120)])) }

func (r *replay) conn(n int) (net.Conn, error) {
	if c := r.conns[n]; c != nil {
		return c, nil
	}
	c, err := net.Dial("tcp", r.m.addr)
	r.conns[n] = c
	return c, err
}

func (r *replay) request(l *line) error {
	msg := l.message(r.t)
	name := msg.command()
	if name == "getMore" {
		id, _ := doc.Field(msg.body, "getMore")
		if s := r.streams[id.Int64()]; s != nil && s.done {
			return r.afterEnd(l, s) // ours has delivered everything and closed the cursor
		}
	}
	msg.body = r.m.translateDocument(msg.body)
	if l.Flags&wire.ExhaustAllowed != 0 {
		return r.awaitHello(l, msg)
	}
	actual, err := r.exchange(l, msg)
	recorded := r.replies[l.RequestID]
	switch {
	case recorded == nil && errors.Is(err, io.EOF):
		return nil // closed on purpose, as in the recording
	case recorded == nil && err == nil:
		return nil
	case err != nil:
		return err
	case skipReply(name):
		return nil
	case recorded.leftOut():
		return largeReply(r, l.RequestID, actual)
	}
	return r.compare(l, name, recorded.message(r.t).body, actual)
}

// exchange sends a request and reads the answer, which it keeps short of waiting.
func (r *replay) exchange(l *line, msg message) (bsoncore.Document, error) {
	c, err := r.conn(l.Conn)
	if err != nil {
		return nil, err
	}
	request := encodeQuery(l.RequestID, msg.body)
	if l.Op == "OP_MSG" {
		msg.body = hurry(msg.body)
		request = msg.encode(l.RequestID, l.Flags)
	}
	if _, err := c.Write(request); err != nil {
		return nil, err
	}
	return readReply(c)
}

// hurry shortens the time that a getMore waits for news.
func hurry(d bsoncore.Document) bsoncore.Document {
	if name, _, _ := doc.First(d); name != "getMore" {
		return d
	}
	b := doc.New()
	for name, v := range doc.All(d) {
		if name == "maxTimeMS" {
			b.Int64(name, 10)
			continue
		}
		b.Value(name, v)
	}
	return b.Document()
}

func readReply(c net.Conn) (bsoncore.Document, error) {
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		return nil, err
	}
	var head [16]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	buf := make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16|int(head[3])<<24)
	if _, err := io.ReadFull(c, buf[16:]); err != nil {
		return nil, err
	}
	if head[12] == byte(wire.OpReply) {
		return buf[36:], nil
	}
	return buf[21:], nil
}

// awaitHello sends a hello that waits for another topology, with a shorter time to wait than the
// ten seconds of drivers, and reads one of the replies that are then pushed.
func (r *replay) awaitHello(l *line, msg message) error {
	b := doc.New()
	for name, v := range doc.All(msg.body) {
		if name == "maxAwaitTimeMS" {
			b.Int64(name, 20)
			continue
		}
		b.Value(name, v)
	}
	c, err := r.conn(l.Conn)
	if err != nil {
		return err
	}
	if _, err := c.Write(message{body: b.Document()}.encode(l.RequestID, l.Flags)); err != nil {
		return err
	}
	actual, err := readReply(c)
	if err != nil {
		return err
	}
	_ = c.Close()
	delete(r.conns, l.Conn)
	if recorded := r.replies[l.RequestID]; recorded != nil {
		return r.m.document("", recorded.message(r.t).body, actual)
	}
	return nil
}

func (r *replay) compare(l *line, name string, recorded, actual bsoncore.Document) error {
	if fields := partial()[name]; fields != nil {
		recorded, actual = only(recorded, fields), only(actual, fields)
	}
	rc, isCursor := doc.Field(recorded, "cursor")
	ac, also := doc.Field(actual, "cursor")
	if _, streams := doc.Path(recorded, "cursor.postBatchResumeToken"); isCursor && also && streams {
		if err := r.compareStream(l, rc.Data, ac.Data); err != nil {
			return err
		}
		return r.m.document("", without(recorded, "cursor"), without(actual, "cursor"))
	}
	return r.m.document("", recorded, actual)
}

func without(d bsoncore.Document, name string) bsoncore.Document {
	b := doc.New()
	for field, v := range doc.All(d) {
		if field != name {
			b.Value(field, v)
		}
	}
	return b.Document()
}

// compareStream compares the cursor of a change stream: its events as one sequence over all
// batches, and its token where both sides stand at the same event.
func (r *replay) compareStream(l *line, recorded, actual bsoncore.Document) error {
	if err := r.m.document("cursor", withoutBatch(recorded), withoutBatch(actual)); err != nil {
		return err
	}
	id, _ := doc.Field(recorded, "id")
	own, _ := doc.Field(actual, "id")
	s := r.stream(l, id.Int64())
	if s.done = own.Int64() == 0; !s.done && id.Int64() != 0 {
		if err := learn(r.m.cursors, id.Int64(), own.Int64(), "cursor"); err != nil {
			return err
		}
	}
	s.recorded = append(s.recorded, batch(recorded)...)
	s.actual = append(s.actual, batch(actual)...)
	if err := r.match(s); err != nil {
		return err
	}
	for tries := 0; len(s.recorded) > 0 && !s.done && tries < 50; tries++ {
		more, err := r.getMore(l, own.Int64(), s)
		if err != nil {
			return err
		}
		s.actual = append(s.actual, batch(more)...)
		if err := r.match(s); err != nil {
			return err
		}
		actual = more
	}
	if id.Int64() == 0 && !s.done {
		return fmt.Errorf("the stream did not end")
	}
	return r.compareToken(s, recorded, actual)
}

func (r *replay) compareToken(s *watched, recorded, actual bsoncore.Document) error {
	rt, _ := doc.Field(recorded, "postBatchResumeToken")
	at, _ := doc.Field(actual, "postBatchResumeToken")
	if len(s.recorded) > 0 || len(s.actual) > 0 {
		r.m.tokens[string(rt.Data)] = doc.Clone(at.Data)
		return nil // they do not stand at the same event
	}
	return r.m.token(rt.Data, at.Data)
}

// stream finds the stream by its recorded cursor id; a getMore that ended it names it in its
// request.
func (r *replay) stream(l *line, id int64) *watched {
	if v, ok := doc.Field(l.message(r.t).body, "getMore"); ok {
		id = v.Int64()
	}
	if r.streams[id] == nil {
		coll, _ := doc.Field(l.message(r.t).body, "aggregate")
		name, ok := coll.StringValueOK()
		if !ok {
			name = "$cmd.aggregate"
		}
		r.streams[id] = &watched{ns: name}
	}
	return r.streams[id]
}

func withoutBatch(d bsoncore.Document) bsoncore.Document {
	b := doc.New()
	for name, v := range doc.All(d) {
		switch name {
		case "firstBatch", "nextBatch":
			b.OpenArray(name).End() // there, and in its place
		case "postBatchResumeToken", "id":
			b.Null(name)
		default:
			b.Value(name, v)
		}
	}
	return b.Document()
}

func batch(cursor bsoncore.Document) []bsoncore.Document {
	v, ok := doc.Field(cursor, "nextBatch")
	if !ok {
		v, _ = doc.Field(cursor, "firstBatch")
	}
	var out []bsoncore.Document
	for item := range doc.Values(v.Data) {
		out = append(out, doc.Clone(item.Data))
	}
	return out
}

// match compares the events that both sides have delivered.
func (r *replay) match(s *watched) error {
	for len(s.recorded) > 0 && len(s.actual) > 0 {
		if err := r.m.document("event", s.recorded[0], s.actual[0]); err != nil {
			return err
		}
		s.recorded, s.actual = s.recorded[1:], s.actual[1:]
	}
	return nil
}

// getMore reads on where ours has delivered less so far.
func (r *replay) getMore(l *line, id int64, s *watched) (bsoncore.Document, error) {
	db, _ := doc.Field(l.message(r.t).body, "$db")
	body := doc.New().Int64("getMore", id).String("collection", s.ns).Int64("maxTimeMS", 10).String("$db", db.StringValue()).Document()
	c, err := r.conn(l.Conn)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write(message{body: body}.encode(1<<20, 0)); err != nil {
		return nil, err
	}
	reply, err := readReply(c)
	cursor, ok := doc.Field(reply, "cursor")
	if err == nil && !ok {
		err = fmt.Errorf("getMore: %s", reply)
	}
	own, _ := doc.Field(cursor.Data, "id")
	s.done = ok && own.Int64() == 0
	return cursor.Data, err
}

// afterEnd compares what the recorded stream still had to say.
func (r *replay) afterEnd(l *line, s *watched) error {
	cursor, ok := doc.Field(r.replies[l.RequestID].message(r.t).body, "cursor")
	if !ok {
		return fmt.Errorf("the stream ended, but the recorded one failed")
	}
	s.recorded = append(s.recorded, batch(cursor.Data)...)
	return r.match(s)
}
