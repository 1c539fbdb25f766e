package admin

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/checkpoint"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/input"
)

// ErrTarget says that a text is none of the forms of a position.
var ErrTarget = errors.New("a position is a time (" + TimeForms + "), earliest, a cluster time t:i, or a resume token's _data in hexadecimal")

// Earliest is the target at the first entry that can be read, where a command takes one.
const Earliest = "earliest"

// ParseTarget reads a position as an operator writes it: a time as ParseTime takes it, which is
// before everything of its second; a cluster time t:i, which is before that operation; or a resume
// token, as {"_data": "82…"} or its _data alone, which is after its event. Anything else is the
// fault CommandBadArgument.
func ParseTarget(text string) (change.Position, error) {
	if at, err := ParseTime(text, time.Now()); err == nil {
		if seconds := at.Unix(); seconds > 0 && seconds <= 1<<32-1 {
			return change.At(change.Timestamp{T: uint32(seconds), I: 1}), nil
		}
		return badTarget(text)
	}
	if data, isToken := tokenData(text); isToken {
		p, err := change.ParseToken(tokenOf(data))
		if err != nil {
			return badTarget(text)
		}
		return p, nil
	}
	t, i, _ := strings.Cut(text, ":")
	seconds, errT := strconv.ParseUint(t, 10, 32)
	increment, errI := strconv.ParseUint(i, 10, 32)
	if errT != nil || errI != nil || seconds < leastSeconds {
		return badTarget(text)
	}
	return change.At(change.Timestamp{T: uint32(seconds), I: uint32(increment)}), nil
}

// FindTarget is ParseTarget that also takes earliest, the first entry that can be read.
func FindTarget(ctx context.Context, source Source, text string) (change.Position, error) {
	if text != Earliest {
		return ParseTarget(text)
	}
	r, known, err := found(ctx, source)
	switch {
	case err != nil:
		return change.Position{}, err
	case !known:
		return change.Position{}, fault.Newf(fault.CommandBadArgument, "%s: the user may not read where the oplog begins: give a time", Earliest)
	}
	return change.At(r.Begins()), nil
}

// leastSeconds, in 2001, distinguishes a cluster time from a time of day, 12:00.
const leastSeconds = 1_000_000_000

// shownTarget is how much of the given target a message repeats, because a token contains a
// document's key.
const shownTarget = 24

func badTarget(text string) (change.Position, error) {
	if len(text) > shownTarget {
		text = text[:shownTarget] + "…"
	}
	return change.Position{}, fault.Newf(fault.CommandBadArgument, "%q: %w", text, ErrTarget)
}

// tokenData returns the hexadecimal digits of a token. A token that was cut off while it was copied
// is none: it would be somewhere among the events of its time, and those before it would be
// skipped.
func tokenData(text string) (data string, ok bool) {
	var token struct {
		Data string `json:"_data"`
	}
	if err := json.Unmarshal([]byte(text), &token); err == nil {
		text = token.Data
	}
	const end = "04" // of every KeyString
	data = strings.ToUpper(text)
	_, err := hex.DecodeString(data)
	return data, err == nil && strings.HasSuffix(data, end)
}

// ParsePartition reads the number of a partition; that there is none of this number is the fault
// CommandBadArgument too.
func ParsePartition(text string, o checkpoint.Origin) (change.Partition, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || !input.IsNumber(text) || n >= uint64(o.Partitions) {
		return 0, fault.Newf(fault.CommandBadArgument, "there is no partition %q: they are numbered from 0 to %d", text, o.Partitions-1)
	}
	return change.Partition(n), nil
}

// tokenOf makes the resume token {_data: data}.
func tokenOf(data string) []byte {
	const name = "\x02_data\x00"
	size := 4 + len(name) + 4 + len(data) + 1 + 1
	token := binary.LittleEndian.AppendUint32(make([]byte, 0, size), uint32(size))
	token = append(token, name...)
	token = binary.LittleEndian.AppendUint32(token, uint32(len(data)+1))
	return append(append(token, data...), 0, 0)
}
