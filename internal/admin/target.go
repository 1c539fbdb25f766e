package admin

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"mongostream/change"
)

// ErrTarget says that a text is none of the forms of a position.
var ErrTarget = errors.New("a position is an RFC 3339 time, a cluster time t:i, or the hexadecimal _data of a resume token")

// ParseTarget reads a position as an operator writes it: an RFC 3339 time, which stands before everything of its second; a cluster time
// t:i, which stands before that operation; or the _data of a resume token in hexadecimal, which stands behind its event.
func ParseTarget(text string) (change.Position, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		if seconds := at.Unix(); seconds > 0 && seconds <= 1<<32-1 {
			return change.At(change.Timestamp{T: uint32(seconds), I: 1}), nil
		}
		return change.Position{}, fmt.Errorf("%q: %w", text, ErrTarget)
	}
	if t, i, ok := strings.Cut(text, ":"); ok {
		seconds, errT := strconv.ParseUint(t, 10, 32)
		increment, errI := strconv.ParseUint(i, 10, 32)
		if errT != nil || errI != nil || seconds == 0 {
			return change.Position{}, fmt.Errorf("%q: %w", text, ErrTarget)
		}
		return change.At(change.Timestamp{T: uint32(seconds), I: uint32(increment)}), nil
	}
	data := strings.ToUpper(text)
	if _, err := hex.DecodeString(data); err != nil {
		return change.Position{}, fmt.Errorf("%q: %w", text, ErrTarget)
	}
	p, err := change.ParseToken(tokenOf(data))
	if err != nil {
		return change.Position{}, fmt.Errorf("%w (%w)", ErrTarget, err)
	}
	return p, nil
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
