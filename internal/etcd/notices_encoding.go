package etcd

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/mongostream/streamer/notice"
)

// The maximum size of a notice: etcd accepts 1.5 MiB in a request, and a batch is one request.
const (
	maxNotice     = 8 << 10
	maxNoticeText = 2 << 10
)

// encodeNotice writes a notice as it is kept. One that is too large, or has particulars that JSON
// has no form for, is kept without those.
func encodeNotice(n notice.Notice) string {
	value, err := json.Marshal(n)
	if err == nil && len(value) <= maxNotice {
		return string(value)
	}
	n.Fields = map[string]any{"shortened": true}
	if len(n.Text) > maxNoticeText {
		n.Text = strings.ToValidUTF8(n.Text[:maxNoticeText], "") + "…"
	}
	value, _ = json.Marshal(n) //nolint:errchkjson // text and numbers only
	return string(value)
}

// decodeNotice reads a notice, which another version may have written.
func decodeNotice(value []byte) (n notice.Notice, err error) {
	if err := json.Unmarshal(value, &n); err != nil {
		return n, err
	}
	if n.Kind == "" || n.Channel == "" {
		return n, errors.New("no notice")
	}
	return n, nil
}
