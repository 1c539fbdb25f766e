package notice_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/mongostream/streamer/notice"
)

func TestReadersFollowAndAreToldWhatTheyMissed(t *testing.T) {
	var text bytes.Buffer
	b := notice.NewBoard(notice.Config{Node: "a", Keep: 3, Logger: slog.New(slog.NewTextHandler(&text, nil))})
	followed := make(chan uint64)
	go func() {
		got, missed, err := b.Follow(t.Context(), 0)
		if err != nil || missed != 0 || len(got) != 1 {
			t.Errorf("%d notices, %d missed, %v", len(got), missed, err)
		}
		followed <- got[0].ID
	}()
	b.Post(notice.Notice{Channel: notice.Breaker, Kind: "breaker_opened", Level: notice.Warning, Text: "etcd is left alone", Fields: map[string]any{"breaker": "etcd"}})
	if id := <-followed; id != 1 {
		t.Errorf("id %d", id)
	}
	for range 5 {
		b.Post(notice.Notice{Channel: notice.Health, Kind: "x", Level: notice.Info, Text: "x"})
	}
	got, missed := b.Since(1)
	if len(got) != 3 || missed != 2 || got[0].ID != 4 || got[0].Node != "a" || got[0].At.IsZero() {
		t.Errorf("%+v, %d missed", got, missed)
	}
	if got, missed = b.Since(6); len(got) != 0 || missed != 0 {
		t.Errorf("after the last: %+v, %d", got, missed)
	}
	if !strings.Contains(text.String(), `level=WARN msg="etcd is left alone" channel=circuit_breaker kind=breaker_opened breaker=etcd`) {
		t.Error(text.String())
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if _, _, err := b.Follow(ctx, 6); !errors.Is(err, cause) {
		t.Error(err)
	}
	(*notice.Board)(nil).Post(notice.Notice{}) // nobody to tell
}
