package plan

import (
	"math"
)

const (
	// learnt is how many periods of Config.Rebalance a leader measures before it plans with rates,
	// span how many it averages over.
	learnt, span = 5, 20
	// parts divides the time over which rates are averaged; the variation between the parts
	// measures chance.
	parts = 10
	// certain is how many standard errors of the average are chance.
	certain = 4
	// exchanges bounds the partitions that are exchanged for balance in a number of periods, unless
	// a member has exceeded its share by half or more for all of that time.
	exchanges, exchangesIn = 4, 10
	far                    = 0.5
)

// A gauge collects the reports of a partition's owners in a period.
type gauge struct {
	sum   float64
	count int
}

func (g *gauge) hear(rate float64) {
	if rate >= 0 && !math.IsInf(rate, 1) {
		g.sum += rate
		g.count++
	}
}

// read returns the events a second of the period that is over, and begins another; not a number
// where nothing was reported.
func (g *gauge) read() float32 {
	rate := float32(g.sum / float64(g.count))
	*g = gauge{}
	return rate
}

// rates are the events a second over a span. The zero value is none.
type rates struct {
	partitions []float64
	chance     map[string]float64 // by how many the average of a member may differ from its share by chance
	urgent     map[string]bool    // members that have far too many all the time
}

// measure records the partitions' rates of a period that has ended. The rates for plans change once
// a period, so that plans do not follow every gust.
func (s *Planner) measure() {
	if s.ratedAt == 0 {
		s.ratedAt = s.now
	}
	if s.now-s.ratedAt < s.cfg.Rebalance {
		return
	}
	s.ratedAt = s.now
	period := make([]float32, len(s.parts))
	for p := range s.parts {
		period[p] = s.parts[p].gauge.read()
	}
	if s.health.Sharing() {
		return // the measurement does not show the demand
	}
	s.periods, s.traded = append(s.periods, period), append(s.traded, 0)
	s.traded = s.traded[max(0, len(s.traded)-exchangesIn):]
	s.periods = s.periods[max(0, len(s.periods)-span):]
	if len(s.periods) >= learnt {
		s.rates = s.over(s.periods)
	}
}

// over returns the rates over periods.
func (s *Planner) over(periods [][]float32) rates {
	r := rates{partitions: average(periods), chance: make(map[string]float64), urgent: make(map[string]bool)}
	if r.partitions == nil {
		return r
	}
	whole, share := s.beside(r.partitions)
	squares := make(map[string]float64)
	for node := range whole {
		r.urgent[node] = true
	}
	n := min(parts, len(periods))
	for k := range n {
		part, _ := s.beside(average(periods[k*len(periods)/n : (k+1)*len(periods)/n]))
		for node, beside := range whole {
			off := part[node] - beside
			squares[node] += off * off
			r.urgent[node] = r.urgent[node] && part[node] >= far*share[node]
		}
	}
	for node, sum := range squares {
		if !r.urgent[node] { // that is no chance, and all of it is corrected at once
			r.chance[node] = certain * math.Sqrt(sum) / float64(n)
		}
	}
	return r
}

// beside returns the members' deviations from their shares in events a second, with the partitions
// of the new plan, and the shares. Without rates it returns nothing.
func (s *Planner) beside(rates []float64) (beside, share map[string]float64) {
	has := make(map[string]float64)
	all := 0.0
	capacity := 0.0
	for p, rate := range rates {
		has[s.parts[p].planned] += rate
		all += rate
	}
	weight := func(m *member) float64 {
		if m.Capacity > 0 {
			return m.Capacity
		}
		return 1
	}
	seats := s.health.Present()
	for _, m := range seats {
		if m.Serves() {
			capacity += weight(m)
		}
	}
	beside, share = make(map[string]float64), make(map[string]float64)
	for _, m := range seats {
		if m.Serves() && all > 0 {
			share[m.Node] = all * weight(m) / capacity
			beside[m.Node] = has[m.Node] - share[m.Node]
		}
	}
	return beside, share
}

// average returns the partitions' rates over periods, and for an unmeasured one the average of the
// others. It is nil if none was measured.
func average(periods [][]float32) []float64 {
	rates := make([]float64, len(periods[0]))
	sum, known := 0.0, 0
	for p := range rates {
		total, n := 0.0, 0
		for _, period := range periods {
			if rate := float64(period[p]); !math.IsNaN(rate) {
				total += rate
				n++
			}
		}
		if rates[p] = total / float64(n); n > 0 {
			sum += rates[p]
			known++
		}
	}
	if known == 0 {
		return nil
	}
	for p := range rates {
		if math.IsNaN(rates[p]) {
			rates[p] = sum / float64(known)
		}
	}
	return rates
}
