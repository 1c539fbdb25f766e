package plan

import (
	"cmp"
	"math"
	"slices"
)

const (
	// tolerance is how much of its share a member's events a second may be above or below it,
	// unless the floor is more.
	tolerance = 0.10
	// worthwhile is how much of its share an exchange must gain a member, and how much of the
	// floor.
	worthwhile, worthwhileFloor = 0.01, 0.1
)

// traffic is the members' events. They are counted in whole units, so that sums do not depend on
// the order.
type traffic struct {
	units []int64   // by partition
	rate  []int64   // by member
	share []float64 // by member: its share
	slack []float64 // by member: by how much it may have more or less
	least float64   // the least gain of an exchange, independent of the share
	lists [][]int   // by member: the partitions that may be exchanged, the quietest first
}

// all is how many units there are.
const all = 1 << 40

// count counts the members' events. Without known rates there are no units.
func (p *assigner) count() {
	const most = 1e15 // events a second: beyond it sums could overflow
	rates := make([]float64, len(p.at))
	var total float64
	for i := range min(len(rates), len(p.in.Rates)) {
		if r := p.in.Rates[i]; r > 0 {
			rates[i] = min(r, most)
			total += rates[i]
		}
	}
	t := traffic{
		rate: make([]int64, len(p.members)), share: make([]float64, len(p.members)), slack: make([]float64, len(p.members)),
		lists: make([][]int, len(p.members)),
	}
	if total > 0 {
		t.units = make([]int64, len(p.at))
	}
	var taken int64
	for i, m := range p.at {
		if m == nobody || !p.members[m].takes || t.units == nil {
			continue
		}
		t.units[i] = int64(rates[i] / total * all)
		t.rate[m] += t.units[i]
		taken += t.units[i]
		if !p.pinned[i] && !(i < len(p.in.Cooling) && p.in.Cooling[i]) {
			t.lists[m] = append(t.lists[m], i)
		}
	}
	var weights float64
	for _, s := range p.members {
		if s.takes {
			weights += s.weight
		}
	}
	floor := 0.0
	if p.in.Floor > 0 && total > 0 {
		floor = p.in.Floor / total * all
	}
	t.least = worthwhileFloor * floor
	for m, s := range p.members {
		t.share[m] = float64(taken) * s.weight / weights
		t.slack[m] = max(tolerance*t.share[m], floor)
		if s.chance > 0 && total > 0 {
			t.slack[m] += s.chance / total * all
		}
		slices.SortFunc(t.lists[m], t.quieter)
	}
	p.events = t
}

func (t *traffic) quieter(i, j int) int {
	return cmp.Or(cmp.Compare(t.units[i], t.units[j]), cmp.Compare(i, j))
}

// excess is the number of events by which a member with that rate exceeds its tolerance.
func (t *traffic) excess(m int, rate float64) float64 {
	return max(0, math.Abs(rate-t.share[m])-t.slack[m])
}

// beside returns a member's deviation from its share, as a fraction of the share.
func (t *traffic) beside(m int) float64 { return float64(t.rate[m])/t.share[m] - 1 }

// exchange finds the next two partitions to exchange, for the member with the greatest deviation
// from its share that an exchange can reduce.
func (p *assigner) exchange() (step, bool) {
	if p.in.Rates == nil || p.in.Moves == 1 {
		return step{}, false
	}
	if p.events.rate == nil {
		p.count()
	}
	t := &p.events
	if t.units == nil {
		return step{}, false
	}
	for _, m := range p.uneven() {
		traded := 0
		if !p.members[m].urgent {
			traded = 2
		}
		if p.in.Exchanges > 0 && traded > 0 && p.traded+traded > p.in.Exchanges {
			continue
		}
		var best trade
		for other := range p.members {
			if other != m && p.members[other].takes {
				t.offer(m, other, p.members[m].weight, p.members[other].weight, &best)
			}
		}
		if best.gain < max(worthwhile*t.share[m], t.least) {
			continue
		}
		why := p.rebalanced(m)
		t.carry(best)
		return step{relocations: []relocation{{best.give, best.other}, {best.take, best.member}}, why: why, traded: traded}, true
	}
	return step{}, false
}

// uneven returns the members beyond the tolerance, the furthest first.
func (p *assigner) uneven() []int {
	t := &p.events
	var members []int
	for m, s := range p.members {
		if s.takes && t.excess(m, float64(t.rate[m])) > 0 {
			members = append(members, m)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(math.Abs(t.beside(b)), math.Abs(t.beside(a))) })
	return members
}

// A trade is a partition of a member for one of another.
type trade struct {
	member, other int
	give, take    int
	gain          float64 // by how many events both together are less beyond the tolerance
	off           float64 // how many events are missing to both being equally far from their shares
}

// offer looks for a better trade between two members. The gain is a concave function of the events
// that change sides, and highest where both members end equally far from their shares. So for each
// partition given, only the neighbours of that point are tried.
func (t *traffic) offer(m, other int, weight, otherWeight float64, best *trade) {
	rate, otherRate := float64(t.rate[m]), float64(t.rate[other])
	want := (rate*otherWeight - otherRate*weight) / (weight + otherWeight)
	before := t.excess(m, rate) + t.excess(other, otherRate)
	theirs := t.lists[other]
	k := 0
	for _, give := range t.lists[m] {
		for k < len(theirs) && float64(t.units[give]-t.units[theirs[k]]) > want {
			k++
		}
		for _, take := range theirs[max(0, k-1):min(k+1, len(theirs))] {
			d := float64(t.units[give] - t.units[take])
			next := trade{member: m, other: other, give: give, take: take, off: math.Abs(d - want),
				gain: before - t.excess(m, rate-d) - t.excess(other, otherRate+d)}
			if next.isBetter(best) {
				*best = next
			}
		}
	}
}

// isBetter reports whether a trade gains more, or as much with the members nearer to their shares.
func (b *trade) isBetter(than *trade) bool {
	if b.gain != than.gain {
		return b.gain > than.gain
	}
	return b.gain > 0 && b.off < than.off
}

// carry counts a trade as done.
func (t *traffic) carry(b trade) {
	d := t.units[b.give] - t.units[b.take]
	t.rate[b.member] -= d
	t.rate[b.other] += d
	t.replace(b.member, b.give, b.take)
	t.replace(b.other, b.take, b.give)
}

func (t *traffic) replace(m, gone, come int) {
	at, _ := slices.BinarySearchFunc(t.lists[m], gone, t.quieter)
	t.lists[m] = slices.Delete(t.lists[m], at, at+1)
	at, _ = slices.BinarySearchFunc(t.lists[m], come, t.quieter)
	t.lists[m] = slices.Insert(t.lists[m], at, come)
}
