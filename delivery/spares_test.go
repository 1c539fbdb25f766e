package delivery

import "testing"

// Memory that grows one by one has no more than twice what it needs, and what was outgrown is used
// again: a batch is charged for its capacity.
func TestGrowingMemoryDoubles(t *testing.T) {
	var spares spareSlices[byte]
	var all []byte
	for n := range 300_000 {
		before := cap(all)
		all = append(spares.grow(all, 1, 0), byte(n))
		if cap(all) != before && cap(all) > 2*before+2 {
			t.Fatalf("%d bytes have grown into %d", before, cap(all))
		}
	}
	for n, b := range all {
		if b != byte(n) {
			t.Fatalf("byte %d is %d", n, b)
		}
	}
	for n := range 5000 {
		if room := cap(spares.take(n)); room < n {
			t.Fatalf("%d of %d", room, n)
		}
	}
}
