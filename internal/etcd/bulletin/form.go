package bulletin

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/mongostream/streamer/notice"
)

// What a notice takes at most: etcd takes 1.5 MiB in a request, and a batch is one.
const (
	maxValue = 8 << 10
	maxText  = 2 << 10
)

// encode writes a notice as it is kept. One that is too large, or has particulars that JSON has no form for, is kept without those.
func encode(n notice.Notice) string {
	value, err := json.Marshal(n)
	if err == nil && len(value) <= maxValue {
		return string(value)
	}
	n.Fields = map[string]any{"shortened": true}
	if len(n.Text) > maxText {
		n.Text = strings.ToValidUTF8(n.Text[:maxText], "") + "…"
	}
	value, _ = json.Marshal(n) //nolint:errchkjson // text and numbers only
	return string(value)
}

// decode reads a notice, which another version may have written.
func decode(value []byte) (n notice.Notice, err error) {
	if err := json.Unmarshal(value, &n); err != nil {
		return n, err
	}
	if n.Kind == "" || n.Channel == "" {
		return n, errors.New("no notice")
	}
	return n, nil
}
