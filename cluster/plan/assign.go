package plan

import (
	"cmp"
	"math"
	"slices"

	"github.com/mongostream/streamer/change"
)

// A Candidate is a member that may own partitions.
type Candidate struct {
	Node string
	// Capacity is the member's relative share of the partitions, between 1/1000 and 1000. Zero, and
	// any value that is not a positive number, counts as 1.
	Capacity float64
	// Keeps reports whether the member may keep its partitions, Takes whether it may get more. A
	// member that does not keep takes nothing either.
	Keeps, Takes bool
	// Chance is the deviation from the member's share, in events a second, that chance can explain.
	// It moves nothing. A value that is not a positive number counts as zero.
	Chance float64
	// Urgent says that it has had far too many events for long: Input.Exchanges does not hold for
	// it.
	Urgent bool
}

// An Input holds everything that a plan depends on.
type Input struct {
	// Partitions is N.
	Partitions int
	// Candidates may come in any order; their names are unique.
	Candidates []Candidate
	// Current is the owner of each partition, empty for none. Names that are not members are dead.
	Current []string
	// Rates are events a second by partition; nil when they are unknown. A value that is not a
	// positive number counts as zero.
	Rates []float64
	// Floor is how many events a second a member must at least have too many or too few for
	// throughput to move anything.
	Floor float64
	// Exchanges bounds how many partitions throughput moves for members that are not Urgent: a pair
	// for each exchange, so that 1 is none. Zero is no bound.
	Exchanges int
	// Cooling are the partitions that throughput does not move, because they have moved lately. Nil
	// is none.
	Cooling []bool
	// Moves bounds how many partitions are moved away from an owner that may keep them. With 0 only
	// those move that must. Throughput needs 2: it exchanges partitions.
	Moves int
	// Pinned is where an operator wants a partition. It is done before other moves, beyond the
	// member's share if need be, if that member takes any.
	Pinned map[change.Partition]string
}

// An Assignment is a plan.
type Assignment struct {
	// Owners is the planned owner of each partition, empty for none, if no member takes any.
	Owners []string
	// Why says for each partition why it is where it is: an index into Reasons, which are for
	// people.
	Why     []uint8
	Reasons []string
	// Moves is how many partitions move away from an owner that may keep them.
	Moves int
	// Exchanged is how many of them count against Input.Exchanges.
	Exchanged int
	// Balanced reports whether another plan, made from this one with the remaining Input.Exchanges,
	// would change nothing.
	Balanced bool
}

// nobody is the number for no member.
const nobody = -1

// A seat is a member at the table.
type seat struct {
	name         string
	seed         uint64
	weight       float64
	chance       float64
	keeps, takes bool
	urgent       bool

	load  int // partitions
	fixed int // of those, how many stay independent of its share
	quota int // its share
}

// An assigner holds a plan while it is made. Members are numbers, in the order of their names.
type assigner struct {
	in      Input
	members []seat
	had     []int  // by partition: the owner that may keep it, or none
	at      []int  // by partition: where it is by now
	pinned  []bool // by partition: an operator has put it there
	waiting []bool // by partition: it has no move left to go where it is pinned
	used    int    // of in.Moves
	traded  int    // of in.Exchanges
	moved   []text // by partition: why it moves away from its owner
	first   []int  // by partition: the member it ranks highest
	homes   []int  // by partition: where the matching has it; nil until asked for
	events  traffic
}

// Assign assigns partitions to members. The result is the same for the same input, in any order of
// the members.
//
// # Three questions, in this order
//
// How many? The members' shares follow their capacities, as seats in a parliament follow votes
// (Webster's method: when a member leaves, no share becomes smaller, and when it returns, all
// shares are as before). A share is a hard bound: no member gets a partition beyond it. It is at
// most ceil(1.05 × N × capacity / all capacities) where there are ten times as many partitions as
// members, and with equal capacities N / members, rounded up.
//
// Which? By rendezvous hashing: each partition ranks the members by a hash of both, weighted by
// capacity, and each member ranks the partitions by the same number. When a member is full, its
// lowest-ranked partitions go to their next choice, until no partition and member prefer each other
// to their present match. There is exactly one such matching. It depends on the present members
// alone, not on history; a first plan is this matching. Afterwards partitions stay where they are
// while their owner keeps them and stays within its share.
//
// Which instead? By throughput: where a member's events a second differ from its share by more than
// 10 %, by more than Input.Floor and by more than chance can explain, one of its partitions is
// exchanged for one of another member, if that improves the two together by at least 1 % of its
// share and a tenth of the floor. Counts do not change, and partitions that are Cooling do not
// move.
//
// What moves
//
//   - Partitions whose owner is gone or may not keep them, always; when a member dies, nothing else
//     but what throughput exchanges then.
//   - When a member joins: as many as its share, first those that the matching gives it.
//   - When a member returns: its partitions of the first plan, from the members that took
//     it in, so that a restart moves nothing for good. After a long history of joins and deaths,
//     and where restarts overlap, it gets back most of it (nine tenths of 64 partitions, more of
//     more), and for the rest others that are its by hash; those it gets back after its next
//     restart.
//   - The pins of operators, and the exchanges for throughput.
//
// All but the first cost a partition that is being served a handoff; a plan does at most
// Input.Moves of those, and a plan that is not Balanced is continued by the next.
//
// # Never a spin
//
// Every such move lessens, in this order: the pins that wait, the partitions above their owner's
// share, the events a second beyond the members' bounds. The first two are counts, the third falls
// by at least 1 % of the smallest share with each exchange. So with unchanged members and rates
// everything rests after at most pins + N + 400 × (all capacities / the smallest) moves. Over the
// lives of 10,000 small clusters counts took 1.00 of the fewest moves possible with equal
// capacities and 1.02 with unequal ones, throughput 1.10 where it could be brought within the
// tolerance.
//
// A member that keeps its partitions but takes none does not take part: nothing goes to it and,
// except for pins, nothing leaves it.
func Assign(in Input) Assignment {
	in.Partitions, in.Moves = max(0, in.Partitions), max(0, in.Moves)
	p := &assigner{
		in:      in,
		had:     make([]int, in.Partitions),
		at:      make([]int, in.Partitions),
		pinned:  make([]bool, in.Partitions),
		waiting: make([]bool, in.Partitions),
		moved:   make([]text, in.Partitions),
	}
	p.sit()
	p.pin()
	p.share()
	p.first = p.rank()
	p.place()
	balanced := p.settle()
	return p.assignment(balanced)
}

// sit seats the members, and the partitions with those that may keep them.
func (p *assigner) sit() {
	for _, m := range p.in.Candidates {
		p.members = append(p.members, seat{
			name: m.Node, seed: seed(m.Node), weight: weight(m.Capacity), chance: m.Chance, urgent: m.Urgent, keeps: m.Keeps, takes: m.Keeps && m.Takes,
		})
	}
	slices.SortFunc(p.members, func(a, b seat) int { return cmp.Compare(a.name, b.name) })
	for i := range p.had {
		p.had[i] = nobody
		if m := p.number(p.current(i)); m != nobody && p.members[m].keeps {
			p.had[i] = m
		}
	}
	copy(p.at, p.had)
}

// pin puts partitions where an operator wants them, as far as there are moves.
func (p *assigner) pin() {
	for i := range p.at {
		name, ok := p.in.Pinned[change.Partition(i)]
		if !ok {
			continue
		}
		to := p.number(name)
		if to == nobody || !p.members[to].takes {
			continue
		}
		cost := p.cost(i, to)
		p.at[i] = to
		p.pinned[i] = true
		if p.used+cost > p.in.Moves {
			p.waiting[i] = true // its place is kept
			continue
		}
		p.used += cost
	}
}

// share counts each member's partitions, and computes how many it should have.
func (p *assigner) share() {
	seats := 0
	for i, m := range p.at {
		if m != nobody {
			p.members[m].load++
		}
		if p.pinned[i] {
			p.members[m].fixed++
		}
		if m == nobody || p.members[m].takes {
			seats++
		}
	}
	apportion(seats, p.members)
}

// place gives the partitions that have no owner to members with room. There is always enough: the
// shares add up.
func (p *assigner) place() {
	var loose []int
	for i, m := range p.at {
		if m == nobody {
			loose = append(loose, i)
		}
	}
	room := make([]int, len(p.members))
	for m, s := range p.members {
		room[m] = max(0, s.quota-s.load)
	}
	for i, m := range p.match(loose, room) {
		if m != nobody {
			p.at[i] = m
			p.members[m].load++
		}
	}
}

// settle makes the moves that make things better, and says whether it has made all of them.
func (p *assigner) settle() (balanced bool) {
	for {
		next, found := p.level()
		if !found {
			next, found = p.exchange()
		}
		if !found {
			return !slices.Contains(p.waiting, true)
		}
		cost := 0
		for _, r := range next.relocations {
			cost += p.cost(r.partition, r.to)
		}
		if p.used+cost > p.in.Moves {
			return false
		}
		p.used += cost
		p.traded += next.traded
		for _, r := range next.relocations {
			p.members[p.at[r.partition]].load--
			p.members[r.to].load++
			p.at[r.partition] = r.to
			p.moved[r.partition] = next.why
		}
	}
}

// A step is a set of moves that belong together.
type step struct {
	relocations []relocation
	why         text
	traded      int // of in.Exchanges
}

type relocation struct{ partition, to int }

// cost is how many moves of served partitions there are more when a partition goes to a member: 1,
// 0, or -1 when it goes back.
func (p *assigner) cost(partition, to int) int {
	owner := p.had[partition]
	switch {
	case owner == nobody || p.at[partition] == to:
		return 0
	case p.at[partition] == owner:
		return 1
	case to == owner:
		return -1
	default:
		return 0
	}
}

func (p *assigner) assignment(balanced bool) Assignment {
	a := Assignment{
		Owners:    make([]string, p.in.Partitions),
		Why:       make([]uint8, p.in.Partitions),
		Moves:     p.used,
		Exchanged: p.traded,
		Balanced:  balanced,
	}
	var b book
	for i, m := range p.at {
		if p.waiting[i] {
			m = p.had[i]
		}
		if m != nobody {
			a.Owners[i] = p.members[m].name
		}
		a.Why[i] = b.number(p.why(i))
	}
	a.Reasons = b.reasons
	return a
}

// current returns a partition's owner by name.
func (p *assigner) current(partition int) string {
	if partition >= len(p.in.Current) {
		return ""
	}
	return p.in.Current[partition]
}

// number returns a member's number.
func (p *assigner) number(name string) int {
	m, found := slices.BinarySearchFunc(p.members, name, func(s seat, name string) int { return cmp.Compare(s.name, name) })
	if !found {
		return nobody
	}
	return m
}

func weight(capacity float64) float64 {
	if !(capacity > 0) || math.IsInf(capacity, 1) {
		return 1
	}
	return min(max(capacity, 0.001), 1000)
}
