package process

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mongostream/streamer/change"
)

// A place is where an event is in the log, as its id tells.
type place = change.Ref

// placeOf reads an id of a cluster that is not known. The id of a sink's message ends with the
// incarnation of its checkpoint.
func placeOf(id string) (place, error) {
	text, _, _ := strings.Cut(id, ".")
	raw, err := base64.RawURLEncoding.DecodeString(text)
	const refAt = 1 + 4 // after the parts and the cluster
	if err != nil || len(raw) < refAt+4+1+4 || raw[0]>>4 != 3 {
		return place{}, fmt.Errorf("not an id: %q", id)
	}
	parts, raw := raw[0], raw[refAt:len(raw)-4] // and before the checksum
	head := change.Head{Time: change.Timestamp{T: binary.BigEndian.Uint32(raw)}, FromInvalidate: parts&2 != 0}
	increment, size := binary.Uvarint(raw[4:])
	head.Time.I, raw = uint32(increment), raw[4+size:]
	if parts&1 != 0 {
		head.Kind = change.KindEvent
	}
	if parts&4 != 0 {
		head.TxnOpIndex, size = binary.Uvarint(raw)
		raw = raw[size:]
	}
	return change.ParseRef(append(append(head.Append(nil), raw...), make([]byte, change.RefSize-change.HeadSize-len(raw))...))
}

// A sighting is what a line tells of an event.
type sighting struct {
	place     place
	partition change.Partition
	document  int64
	op        string
	seq       int64 // the change's number among those of its document; 0 where the line has none
}

// sight reads a line of a node's output, or the data of a message of /v1/events.
func sight(line string) (sighting, error) {
	type numbered struct {
		Seq int64 `json:"rev"`
	}
	var e struct {
		ID        string           `json:"id"`
		Partition change.Partition `json:"partition"`
		Op        string           `json:"operationType"`
		Key       struct {
			ID int64 `json:"_id"`
		} `json:"documentKey"`
		Full   numbered `json:"fullDocument"`
		Update struct {
			Set numbered `json:"updatedFields"`
		} `json:"updateDescription"`
	}
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		return sighting{}, fmt.Errorf("%w: %s", err, line)
	}
	p, err := placeOf(e.ID)
	return sighting{place: p, partition: e.Partition, document: e.Key.ID, op: e.Op, seq: e.Full.Seq + e.Update.Set.Seq}, err
}

// sightings are what a list of lines tells.
func sightings(t testing.TB, lines []string) []sighting {
	t.Helper()
	all := make([]sighting, len(lines))
	for i, line := range lines {
		var err error
		if all[i], err = sight(line); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// described writes what a list of sightings is about: operations with the documents.
func described(all []sighting) string {
	words := make([]string, len(all))
	for i, s := range all {
		words[i] = fmt.Sprintf("%s %d", s.op, s.document)
	}
	return strings.Join(words, ", ")
}

// byDocument sorts sightings by documents and leaves each document's in the order in which they
// came.
func byDocument(all []sighting) []sighting {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b sighting) int { return cmp.Compare(a.document, b.document) })
	return all
}
