package config

import (
	"cmp"
	"slices"
	"strings"
)

// nearest returns the known name that name is most likely meant to be, or "" if none is similar.
// Paths are similar if few letters differ, in the whole path or in its last part alone, so that a
// key in the wrong section is found, too.
func nearest(name string, known []string) string {
	const longest = 100 // beyond it nothing is near, and the work would be wasted
	if len(name) > longest || len(known) == 0 {
		return ""
	}
	last := func(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }
	far := func(to string) int { return min(distance(name, to), distance(last(name), last(to))+1) }
	best := slices.MinFunc(known, func(a, b string) int {
		return cmp.Or(cmp.Compare(far(a), far(b)), cmp.Compare(distance(name, a), distance(name, b)), strings.Compare(a, b))
	})
	if far(best) > max(2, len(last(name))/4) {
		return ""
	}
	return best
}

// Suggestion asks whether one of the known names was meant; it is empty if none is similar.
func Suggestion(name string, known []string) string {
	if similar := nearest(name, known); similar != "" {
		return "; did you mean " + similar + "?"
	}
	return ""
}

// distance is the number of letters to insert, remove, replace or swap with their neighbour that
// make b of a.
func distance(a, b string) int {
	var before []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(row[j+1]+1, next[j]+1, row[j]+cost)
			isSwapped := i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j]
			if isSwapped {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before = row
		row = next
	}
	return row[len(b)]
}
