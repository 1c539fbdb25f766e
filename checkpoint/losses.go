package checkpoint

import (
	"errors"
	"slices"

	"github.com/mongostream/streamer/change"
)

const (
	// MaxLosses bounds the losses of a checkpoint: of more, the two oldest become one.
	MaxLosses = 8
	// maxLossNames and maxLossBytes bound the namespaces of one of them; beyond, it is of all.
	maxLossNames, maxLossBytes = 8, 512
)

// trimmedLosses returns the stored form of the losses of a checkpoint: they have times and no
// tokens, and few namespaces.
func trimmedLosses(all []Gap) ([]Gap, error) {
	all = fewLosses(slices.Clone(all))
	for i, g := range all {
		if g.Reason == "" {
			return nil, errors.New("a loss without a reason")
		}
		g.From = change.At(g.From.Time)
		g.To = change.At(g.To.Time)
		g.Fingerprint = ""
		g.Found = g.Found.Round(0).UTC()
		g.Namespaces = slices.Clone(g.Namespaces)
		bytes := 0
		for _, name := range g.Namespaces {
			bytes += len(name)
		}
		if len(g.Namespaces) == 0 || len(g.Namespaces) > maxLossNames || bytes > maxLossBytes {
			g.Namespaces = nil // all
		}
		all[i] = g
	}
	if len(all) == 0 {
		return nil, nil
	}
	return all, nil
}

// fewLosses returns at most MaxLosses: of more, the two oldest become one.
func fewLosses(all []Gap) []Gap {
	for len(all) > MaxLosses {
		all[1] = all[0].joined(all[1])
		all = all[1:]
	}
	return all
}

// lose adds the losses of a Save to a merged checkpoint if it passes them: before is the stored
// checkpoint. It reports whether some are new. A save that comes again adds nothing.
func (c *Checkpoint) lose(before Checkpoint, losses []Gap) (some bool) {
	c.Losses = slices.Clone(before.Losses)
	for _, g := range losses {
		passes := before.Earliest().Time.Compare(g.To.Time) <= 0 && c.Latest().Time.Compare(g.To.Time) >= 0
		if !passes || slices.ContainsFunc(c.Losses, g.within) {
			continue
		}
		c.Losses = append(c.Losses, g)
		some = true
	}
	c.Losses = fewLosses(c.Losses)
	return some
}

// within reports whether the whole of a gap is in another one.
func (g Gap) within(other Gap) bool {
	inside := other.From.Time.Compare(g.From.Time) <= 0 && g.To.Time.Compare(other.To.Time) <= 0
	return inside && (len(other.Namespaces) == 0 || len(g.Namespaces) > 0 && !slices.ContainsFunc(g.Namespaces, func(name string) bool {
		return !slices.Contains(other.Namespaces, name)
	}))
}
