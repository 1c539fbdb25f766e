package admin_test

import (
	"testing"
	"time"

	"github.com/mongostream/streamer/internal/admin"
)

func TestTimesAreReadInEveryFormThatOperatorsWrite(t *testing.T) {
	t.Parallel()
	riga, err := time.LoadLocation("Europe/Riga")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 25, 14, 0, 0, 0, riga) // 12:00 UTC
	utc := func(hour, minute, second int) time.Time {
		return time.Date(2026, 11, 25, hour, minute, second, 0, time.UTC)
	}
	for text, want := range map[string]time.Time{
		"2026-11-25T04:05:27Z":      utc(4, 5, 27),
		"2026-11-25T06:05:27+02:00": utc(4, 5, 27),
		"2026-11-25 04:05:27 UTC":   utc(4, 5, 27),
		"2026-11-25 04:05:27 GMT":   utc(4, 5, 27),
		"2026-11-25 06:05:27 EET":   utc(4, 5, 27), // as it is printed here
		"2026-07-01 06:05:27 EEST":  time.Date(2026, 7, 1, 3, 5, 27, 0, time.UTC),
		"2026-11-25 04:05:27Z":      utc(4, 5, 27),
		"2026-11-25 06:05:27":       utc(4, 5, 27),
		"2026-11-25 06:05":          utc(4, 5, 0),
		"-10m":                      utc(11, 50, 0),
		"10m":                       utc(11, 50, 0),
		"10m ago":                   utc(11, 50, 0),
		"1h30m":                     utc(10, 30, 0),
		"-90s":                      utc(11, 58, 30),
		"0s":                        utc(12, 0, 0),
		"1d":                        utc(12, 0, 0).Add(-24 * time.Hour),
		"-2d3h":                     utc(9, 0, 0).Add(-48 * time.Hour),
	} {
		if got, err := admin.ParseTime(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v; want %v", text, got.UTC(), err, want)
		}
	}
	for _, text := range []string{
		"", "now", "earliest", "+10m", "--10m", "-10m ago", "-+10m", "1d-2h", "10", "12:00", "2026-11-25", "2026-11-25 04:05:27 PST", "2026-11-25 04:05:27 XYZ",
		"2026-13-01T00:00:00Z", "tomorrow", "1795578400:1", "1.5d", "99999999d", " 10m",
	} {
		if got, err := admin.ParseTime(text, now); err == nil {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}
