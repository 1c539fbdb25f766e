package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// parseBool reads true or false; YAML's other spellings of them are refused, because YAML itself
// has given them up.
func parseBool(text string) (bool, error) {
	switch text {
	case "true", "false":
		return text == "true", nil
	default:
		return false, errors.New("must be true or false")
	}
}

// parseInt reads a whole number in decimal digits.
func parseInt(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, errors.New("must be a whole number")
	}
	return n, nil
}

// parseFloat reads a number in decimal digits.
func parseFloat(text string) (float64, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || strings.ContainsFunc(text, func(r rune) bool { return !strings.ContainsRune("0123456789.-", r) }) {
		return 0, errors.New("must be a number, such as 0.01")
	}
	return n, nil
}

// parseDuration reads a duration with its units.
func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New("must be a duration with its unit, such as 500ms, 10s, 3m or 1h30m")
	}
	return d, nil
}

// formatDuration is time.Duration's String without zeros at its end: 3m, not 3m0s.
func formatDuration(d time.Duration) string {
	text := d.String()
	for _, zero := range []struct{ whole, rest string }{{"m", "0s"}, {"h", "0m"}} {
		if strings.HasSuffix(text, zero.whole+zero.rest) {
			text = strings.TrimSuffix(text, zero.rest)
		}
	}
	return text
}

// sizeUnits are the units of a size, the greatest first.
func sizeUnits() []string { return []string{"TiB", "GiB", "MiB", "KiB", "B"} }

// parseSize reads a whole number of bytes with its unit.
func parseSize(text string) (int64, error) {
	units := sizeUnits()
	for i, unit := range units {
		digits, found := strings.CutSuffix(text, unit)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		shift := 10 * (len(units) - 1 - i)
		if err != nil || n > math.MaxInt64>>shift {
			break
		}
		return int64(n) << shift, nil
	}
	return 0, errors.New("must be a size with its unit (B, KiB, MiB, GiB, TiB), such as 48MiB")
}

// formatSize writes a size in the greatest unit that leaves no rest.
func formatSize(n int64) string {
	units := sizeUnits()
	unit := len(units) - 1
	for ; unit > 0 && n != 0 && n%1024 == 0; unit-- {
		n /= 1024
	}
	return strconv.FormatInt(n, 10) + units[unit]
}

// within reads a value and holds it against the bounds of a range tag, "least..greatest" or
// "least..".
func within[T cmp.Ordered](bounds, text string, parse func(string) (T, error)) (T, error) {
	v, err := parse(text)
	if err != nil || bounds == "" {
		return v, err
	}
	least, greatest, _ := strings.Cut(bounds, "..")
	lower, err := parse(least)
	if err != nil {
		return v, fmt.Errorf("range %q: %w", bounds, err)
	}
	upper, err := parse(cmp.Or(greatest, text))
	if err != nil {
		return v, fmt.Errorf("range %q: %w", bounds, err)
	}
	switch {
	case v >= lower && v <= upper:
		return v, nil
	case greatest == "":
		return v, errors.New("must be at least " + least)
	default:
		return v, fmt.Errorf("must lie between %s and %s", least, greatest)
	}
}
