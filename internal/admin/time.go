package admin

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// TimeForms names the forms of a time, for help and errors.
const TimeForms = `2026-01-31T12:00:00Z, "2026-01-31 12:00:00 UTC", or -10m for ten minutes ago`

// errTime says that a text is none of the forms of a time.
var errTime = errors.New("a time is like " + TimeForms)

// withZone is the layout of a time with the name of its zone.
const withZone = "2006-01-02 15:04:05 MST"

// ParseTime reads a time as an operator writes it. It takes
//
//	2026-01-31T12:00:00Z         RFC 3339, with an offset or Z
//	2026-01-31 12:00:00 UTC      as commands print it: UTC, or a zone that this machine uses
//	2026-01-31 12:00[:00]        in the zone of this machine
//	-10m, 10m, 10m ago, 2d3h     so long before now
//
// Days have 24 hours. A relative time in the future is refused.
func ParseTime(text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	for _, layout := range []string{withZone, "2006-01-02 15:04:05Z07:00", time.DateTime, "2006-01-02 15:04"} {
		at, err := time.ParseInLocation(layout, text, now.Location())
		if err != nil {
			continue
		}
		if zone, _ := at.Zone(); layout == withZone && !isKnownZone(at, now) {
			return time.Time{}, errors.New("the time zone " + zone + " is not known here: write the time in UTC, or with its offset")
		}
		return at, nil
	}
	ago, negative := strings.CutPrefix(strings.TrimSuffix(text, " ago"), "-")
	if negative && strings.HasSuffix(text, " ago") {
		return time.Time{}, errTime
	}
	d, err := parseAgo(ago)
	if err != nil {
		return time.Time{}, errTime
	}
	return now.Add(-d), nil
}

// isKnownZone reports whether the zone of a parsed time is known here: the parser gives one that is
// not the offset 0.
func isKnownZone(at, now time.Time) bool {
	zone, offset := at.Zone()
	here, _ := at.In(now.Location()).Zone()
	return offset != 0 || zone == "UTC" || zone == "GMT" || zone == here
}

// parseAgo reads a duration that is not negative and may begin with days.
func parseAgo(text string) (time.Duration, error) {
	var whole time.Duration
	if days, rest, found := strings.Cut(text, "d"); found {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, errTime
		}
		whole = time.Duration(n) * 24 * time.Hour
		if text = rest; text == "" {
			return whole, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || strings.HasPrefix(text, "-") || strings.HasPrefix(text, "+") {
		return 0, errTime
	}
	return whole + d, nil
}
