package plan

import (
	"fmt"
	"math"
)

// A text says why a partition is where it is: in full, and without names and numbers for when there
// would be too many texts.
type text struct{ full, short string }

// why returns why a partition is where it ends up.
func (p *assigner) why(i int) text {
	switch m := p.at[i]; {
	case m == nobody:
		return text{full: "nobody takes it"}
	case p.waiting[i]:
		return text{"pinned by an operator to " + p.members[m].name + ", where it will go", "pinned by an operator, will go"}
	case p.pinned[i]:
		return text{full: "pinned by an operator"}
	case m == p.had[i]:
		return p.stays(i)
	case p.moved[i] != text{}:
		return p.moved[i]
	default:
		return p.placed(i)
	}
}

// stays says why a partition has not moved.
func (p *assigner) stays(i int) text {
	m := p.at[i]
	f := p.first[i]
	switch {
	case !p.members[m].takes:
		return text{"stays: " + p.members[m].name + " takes no more, but keeps it", "stays: its owner takes no more, but keeps it"}
	case m == f:
		return text{full: "stays: first by its hash"}
	case p.members[f].load >= p.members[f].quota:
		return text{"stays: " + p.members[f].name + ", first by its hash, is full", "stays: the first by its hash is full"}
	default:
		return text{"stays, though " + p.members[f].name + " is first by its hash", "stays, though another is first by its hash"}
	}
}

// placed says why a partition without an owner went where it is.
func (p *assigner) placed(i int) text {
	t := text{full: "first by its hash", short: "first by its hash"}
	if f := p.first[i]; f != p.at[i] {
		t = text{"bounded load: " + p.members[f].name + " is full", "bounded load: the first by its hash is full"}
	}
	switch owner := p.current(i); {
	case owner == "":
		return t
	case p.number(owner) == nobody:
		return text{owner + " is gone; " + t.full, "its owner is gone; " + t.short}
	default:
		return text{owner + " may not keep it; " + t.full, "its owner may not keep it; " + t.short}
	}
}

// levelled says why a partition goes to a member that has less than its share.
func (p *assigner) levelled(to int, homeward bool) text {
	name := p.members[to].name
	if homeward {
		return text{"goes to " + name + ", which has it by hash and had room", "goes where it is by hash"}
	}
	return text{"goes to " + name + ", which had less than its share", "goes where there was less than a share"}
}

// rebalanced says why partitions of a member are exchanged.
func (p *assigner) rebalanced(m int) text {
	percent := math.Round(100 * p.events.beside(m))
	than := "more"
	if percent < 0 {
		percent = -percent
		than = "less"
	}
	return text{fmt.Sprintf("rebalanced: %s had %.0f%% %s events than its share", p.members[m].name, percent, than), "rebalanced"}
}

// A book numbers the reasons.
type book struct {
	reasons []string
	numbers map[string]uint8
}

// fullTexts is the number of texts in full; later ones come without names and numbers, so that few
// differ.
const fullTexts = 230

func (b *book) number(t text) uint8 {
	if b.numbers == nil {
		b.numbers = make(map[string]uint8)
	}
	s := t.full
	if _, known := b.numbers[s]; !known && len(b.reasons) >= fullTexts && t.short != "" {
		s = t.short
	}
	n, known := b.numbers[s]
	if !known {
		n = uint8(len(b.reasons))
		b.numbers[s] = n
		b.reasons = append(b.reasons, s)
	}
	return n
}
