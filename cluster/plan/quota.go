package plan

// apportion gives the seats to the members that take any: each seat goes to the member with the
// most weight per seat, counting half a seat more than it has, and among equals to the first by
// name. No member gets less than its fixed seats.
func apportion(seats int, members []seat) {
	for m := range members {
		members[m].quota = members[m].fixed
		seats -= members[m].fixed
	}
	for range seats {
		best := nobody
		most := 0.0
		for m, s := range members {
			if claim := s.weight / (float64(s.quota) + 0.5); s.takes && claim > most {
				best = m
				most = claim
			}
		}
		if best == nobody {
			return
		}
		members[best].quota++
	}
}

// level finds the next move from a member above its share to one below: first of those that go
// where the matching has them, the one that its new owner ranks highest; else whichever goes to the
// member that lacks most and prefers it most to where it is.
func (p *assigner) level() (step, bool) {
	poorest := nobody
	lack := 0
	for m, s := range p.members {
		if s.takes && s.quota-s.load > lack {
			poorest = m
			lack = s.quota - s.load
		}
	}
	if poorest == nobody || !p.crowded() {
		return step{}, false
	}
	if p.homes == nil {
		p.homes = p.home()
	}
	best := nobody
	to := nobody
	most := 0.0
	homeward := false
	for i, owner := range p.at {
		if p.pinned[i] || !p.above(owner) {
			continue
		}
		if h := p.homes[i]; h != nobody && h != owner && p.members[h].load < p.members[h].quota {
			if rank := p.score(i, h); !homeward || rank > most {
				best = i
				to = h
				most = rank
				homeward = true
			}
			continue
		}
		if homeward {
			continue
		}
		if preference := p.score(i, poorest) / p.score(i, owner); best == nobody || preference > most {
			best = i
			to = poorest
			most = preference
		}
	}
	if best == nobody {
		return step{}, false
	}
	return step{relocations: []relocation{{best, to}}, why: p.levelled(to, homeward)}, true
}

// crowded reports whether a member has more than its share.
func (p *assigner) crowded() bool {
	for m := range p.members {
		if p.above(m) {
			return true
		}
	}
	return false
}

// above reports whether a member has more than its share.
func (p *assigner) above(m int) bool {
	return m != nobody && p.members[m].takes && p.members[m].load > p.members[m].quota
}
