package config

import (
	"cmp"
	"slices"
	"strings"
)

// nearest returns the one of the known names that name most likely stands for, or "" where none is near. Paths are near when
// few letters differ, in the whole or in the last part alone: a key in the wrong section is found too.
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

// suggestion asks whether name was meant.
func suggestion(name string) string {
	if name == "" {
		return ""
	}
	return "; did you mean " + name + "?"
}

// distance is the number of letters to insert, remove, replace or swap with their neighbour that make b of a.
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
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
